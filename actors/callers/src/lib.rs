//! Callers: agents, their requests, streams and tasks, and the tool caches of their sessions.

pub mod agent;
mod agent_requests;
mod agent_tap;
mod callbacks;
mod credential;
mod directory;
mod in_flight_call;
mod issued_tasks;
pub mod negotiation;
mod registered_agents;
pub mod request;
mod responses;
pub mod tasks;
pub mod tool_cache;

// The messages of one agent, for an operator who follows them.
pub use self::agent_tap::AgentTap;

// Open callbacks, and the way of each answer back to the requester.
pub use self::callbacks::OpenCallbackGuard;

// Which agent a credential belongs to, and how long it is valid.
pub use self::credential::Credential;

// All connected agents, for messages that belong to no request.
pub use self::directory::{Directory, render_log_frame};

// The state of one in-flight request: where its messages go, and whether it was cancelled.
pub use self::in_flight_call::call_stream::budget::StreamBudgets;
pub use self::in_flight_call::call_stream::{
    CallStreamHandle, CallStreamMsg, CallStreamNotice, ChunkForm, ChunkGuard, PartialResult,
};
pub use self::in_flight_call::forwarded_headers::ForwardedHeaders;
pub use self::in_flight_call::guard_report::GuardReport;
pub use self::in_flight_call::in_flight_calls::{InFlightCallGuard, InFlightCalls};
pub use self::in_flight_call::remote_times::NodeTimes;
pub use self::in_flight_call::rounds::{
    CallRound, CallRounds, LongCall, Outlet, STREAM_QUEUE, TaskWait,
};
pub use self::in_flight_call::streams::{Lane, Stream, Streams};
pub use self::in_flight_call::{Delivery, Flag, InFlightCall, ReplyPath, SendError};

// The agents that have a token, as the endpoints read them.
pub use self::registered_agents::RegisteredAgents;

// Responses that agents have not read: how many bytes of them the kernel buffers, in all and for each agent.
pub use self::responses::AgentTable;
