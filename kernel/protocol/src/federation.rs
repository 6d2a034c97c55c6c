//! The wire protocol between the kernels of a cluster, over one link for each pair.
//!
//! A link carries streams of frames. A frame is a header of five bytes and a body: a message of this
//! module, which is a MessagePack map by name, or the JSON of a call as the agent or the server wrote it,
//! which is relayed unchanged. Unknown members are ignored, unknown messages and features are preserved, so
//! that kernels of two versions can be linked.

pub mod addresses;
pub mod assertion;
pub mod call;
pub mod close_codes;
pub mod control;
pub mod frames;
pub mod hello;
pub mod logs;
pub mod node_id;
pub mod pairing;
pub mod reported_agent;
pub mod sync;
pub mod tool_index;

mod byte_text;
mod message;

pub use message::to_printable;
