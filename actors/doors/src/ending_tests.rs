//! Tests: what has ended is freed. No actor or handle is held beyond its end, and no task goes
//! on.

mod connections;
pub(crate) mod scene;
mod sessions;
mod tasks;
#[path = "../../testing/watched.rs"]
mod watched;
