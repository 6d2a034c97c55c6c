//! `roots/*`.

super::methods! {
    "roots/list" => List,
    "notifications/roots/list_changed" => ListChanged,
}

/// `roots/list`: a server's request for the folders it may use.
#[derive(Debug)]
pub(crate) struct List;

/// `notifications/roots/list_changed`.
#[derive(Debug)]
pub struct ListChanged;
