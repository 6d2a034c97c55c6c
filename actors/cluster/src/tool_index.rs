//! The tools of all nodes.

mod held_tools;

pub use self::held_tools::{HeldServer, HeldTool, HeldTools};
