//! What kernels of a cluster say to each other, over one link for each pair.
//!
//! A link carries streams of frames. A frame is a head of five bytes and a body: a message of this
//! module, which is a MessagePack map by name, or the JSON of a call as the agent or the server wrote
//! it, which nobody on the way writes anew. Members that are not known are passed over, messages and
//! features that are not known are kept as they came, so that kernels of two versions can be linked.

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
