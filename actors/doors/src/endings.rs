//! What has ended is gone: nothing holds an actor or a handle of any kind beyond its end, and no task
//! of its goes on.

mod connections;
pub(crate) mod scene;
mod sessions;
mod tasks;
#[path = "../../testing/watched.rs"]
mod watched;
