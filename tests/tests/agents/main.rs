//! Published clients at the kernel's doors: what they see there is what they see of the server
//! itself.
#![allow(clippy::unwrap_used)]

mod across_eras;
mod default_environment;
mod inspector;
mod mcp_remote;
mod python_sdk;
mod registering;
mod story;
mod streaming;
mod strict_lists;
mod typescript_sdk;
