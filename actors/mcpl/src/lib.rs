//! MCPL: the host of MCPL servers, and the connection to agents that are MCPL hosts themselves.

mod agents;
pub mod audit;
mod channels;
mod conversations;
mod feature_sets;
mod hooks;
mod host;
mod inference;
pub mod push;
pub mod scopes;
pub mod state;

// The connected agents that are MCPL hosts: for them the kernel is one MCPL server that combines all (MCPL-151).
pub use self::agents::McplAgents;

// The registry of channels, and their messages in both directions (MCPL §14).
pub use self::channels::{ChannelError, Channels, OutgoingCompletion};

// Maps ids of inferences and conversations between their sides.
pub use self::conversations::Conversations;

// The enabled feature sets of each server, published (MCPL §6).
pub use self::feature_sets::FeatureSetStore;

// Context hooks, fanned out and chained (MCPL §10).
pub use self::hooks::{AfterVerdict, HookDeps, HookOrigin, Hooks, ObservedModel};

// The host side of MCPL: sends requests and notifications to servers, and handles theirs.
pub use self::host::{HostEvent, McplHandler, McplHost};

// Inferences that servers request (MCPL §11), and `model/info` (§12).
pub use self::inference::{
    InferenceDeps, InferenceHandle, ObservedModels, PublishedAnswer, PushInferenceRequest,
    UsedTokens, id_mapper,
};
