//! The doors as agents see them: Streamable HTTP, the owner's socket, `mgp stdio` and the command
//! line, each story with a real `mgp up` behind it and the scripted server behind that.
#![allow(clippy::unwrap_used)]

mod apps;
mod calls;
mod command_line;
mod extensions;
mod http;
mod modern;
mod notices;
mod offers;
mod questions;
mod scene;
mod sets;
mod skills;
mod upstreams;
mod wire;
