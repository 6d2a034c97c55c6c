//! `roots/*`.

super::methods! {
    "roots/list" => List,
    "notifications/roots/list_changed" => ListChanged,
}

/// `roots/list`: a server asks which folders it may look at.
#[derive(Debug)]
pub(crate) struct List;

/// `notifications/roots/list_changed`.
#[derive(Debug)]
pub struct ListChanged;
