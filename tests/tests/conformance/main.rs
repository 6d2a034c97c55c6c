//! The official conformance suite: its server scenarios through the kernel with servers of every
//! era behind it, and its client scenarios against the face the kernel shows to servers.
#![allow(clippy::unwrap_used)]

mod broker;
mod clients;
mod logins;
mod servers;
mod skills;
mod suite;
