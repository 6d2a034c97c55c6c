//! The doors as agents see them: Streamable HTTP, the owner's socket, `mgp stdio` and the command
//! line, each story with a real `mgp up` behind it and the scripted server behind that.
#![allow(clippy::unwrap_used)]

mod auth;
mod bodies;
mod cancelling;
mod changes;
mod cli;
mod consents;
mod crowd;
mod errors;
mod found;
mod half_sent;
mod handshakes;
mod headers;
mod instances;
mod logging;
mod modern_calls;
mod modern_envelope;
mod modern_listening;
mod modern_rounds;
mod names;
mod offered;
mod old_style;
mod paging;
mod progress;
mod prompts;
mod questions;
mod replay;
mod resources;
mod scene;
mod sessions;
mod stdio;
mod strangers;
mod trust;
mod turns;
mod verbatim;
mod versions;
mod who;
mod wire;
