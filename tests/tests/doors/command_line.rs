//! `mgp` as it is typed or started by a client: commands, `mgp stdio`, trust.

mod check;
mod client_files;
mod connect;
mod doctor;
mod export;
mod found;
mod import;
mod logins;
mod old_spellings;
mod permissions;
mod registry;
mod secrets;
mod service;
mod stdio;
mod terminal;
mod trace;
mod trust;
mod typed;
mod unseen;
mod version;
mod who;
mod windows;
