//! Links to other nodes.

mod table;

pub use self::table::{InboundNodeCall, LinkTable, PeerLink};
