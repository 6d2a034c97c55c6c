//! `roots/*`.

super::methods! {
    "roots/list" => List,
    "notifications/roots/list_changed" => ListChanged,
}

/// `roots/list`: a server asks which folders it may look at.
#[derive(Debug)]
pub struct List;

/// `notifications/roots/list_changed`.
#[derive(Debug)]
pub struct ListChanged;
