//! Tests that ended connections, sessions and tasks free their memory: no actor or handle is held beyond
//! its end, and no task continues.

mod connections;
pub(crate) mod scene;
mod sessions;
mod tasks;
#[path = "../../testing/watched.rs"]
mod watched;
