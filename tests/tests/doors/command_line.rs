//! `mgp` as it is typed or started by a client: commands, `mgp stdio`, trust.

mod connect;
mod doctor;
mod found;
mod import;
mod secrets;
mod service;
mod stdio;
mod trust;
mod typed;
mod unseen;
mod who;
