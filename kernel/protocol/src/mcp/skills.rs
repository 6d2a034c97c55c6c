//! `skills/*` of the Skills extension (SEP-2640).

super::methods! {
    "skills/list" => List,
    "skills/get" => Get,
}

/// `skills/list`: the entries of a server's skills.
#[derive(Debug)]
pub struct List;

/// `skills/get`: the entry of one skill.
#[derive(Debug)]
pub struct Get;
