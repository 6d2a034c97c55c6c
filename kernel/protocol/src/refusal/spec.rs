//! The properties of each kind of refusal, one row each, for rendering, metrics and retries.

use super::audit_outcome::{Failure, Outcome};
use super::code::Code;
use super::owner_refusal::{OwnerRefusal, OwnerRefusalCause};
use super::{
    CallOutcome, HEADER_MISMATCH, MISSING_CAPABILITY, RESOURCE_NOT_FOUND, Refusal, RefusalReason,
    UNSUPPORTED_VERSION,
};
use crate::dialect::{ProtocolFamily, Version};
use crate::jsonrpc::{INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND};

/// The row of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalSpec {
    /// The code for a plain MCP caller.
    pub jsonrpc: JsonRpcCode,
    /// The HTTP status of the answer to a stateless caller; `None`: that of the relayed error.
    pub http_status: Option<u16>,
    /// The code for an MGP caller.
    pub mgp: Option<Code>,
    /// The outcome of the call, in the audit log.
    pub outcome: Outcome,
    /// The layer of the failure, in the audit log.
    pub failure: Option<Failure>,
    /// The label of metrics and spans.
    pub reason: RefusalReason,
    /// The cause for another node, if this node owns the server.
    pub owner_cause: OwnerRefusalCause,
    /// Whether the call took effect: unknown if it was sent, or that cannot be ruled out.
    pub call_outcome: CallOutcome,
}

/// A code of JSON-RPC, which depends on the protocol of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonRpcCode {
    legacy: i64,
    stateless: i64,
}

/// The outcome of a call, and the layer of a failure.
pub(super) type Ended = (Outcome, Option<Failure>);

pub(super) const BLOCKED: Ended = (Outcome::Blocked, None);
pub(super) const DENIED: Ended = (Outcome::Denied, None);
pub(super) const CANCELLED: Ended = (Outcome::Cancelled, None);
pub(super) const TIMEOUT: Ended = (Outcome::Timeout, Some(Failure::Transport));
pub(super) const TRANSPORT: Ended = (Outcome::Failure, Some(Failure::Transport));
pub(super) const PROTOCOL: Ended = (Outcome::Failure, Some(Failure::Protocol));

pub(super) const METHOD: JsonRpcCode = JsonRpcCode::new(METHOD_NOT_FOUND);
pub(super) const REQUEST: JsonRpcCode = JsonRpcCode::new(INVALID_REQUEST);
pub(super) const PARAMS: JsonRpcCode = JsonRpcCode::new(INVALID_PARAMS);
pub(super) const INTERNAL: JsonRpcCode = JsonRpcCode::new(INTERNAL_ERROR);
const HEADER: JsonRpcCode = JsonRpcCode::new(HEADER_MISMATCH);
const CAPABILITY: JsonRpcCode = JsonRpcCode::new(MISSING_CAPABILITY);
const VERSION: JsonRpcCode = JsonRpcCode::new(UNSUPPORTED_VERSION);
const RESOURCE: JsonRpcCode = JsonRpcCode {
    legacy: RESOURCE_NOT_FOUND,
    stateless: INVALID_PARAMS,
};

/// The code for a legacy caller, which supports only those of JSON-RPC.
pub(crate) const fn legacy_code(code: i64) -> i64 {
    match code {
        HEADER_MISMATCH | MISSING_CAPABILITY => INVALID_REQUEST,
        // The answer of legacy servers to an unsupported `initialize`.
        UNSUPPORTED_VERSION => INVALID_PARAMS,
        code => code,
    }
}

impl JsonRpcCode {
    const fn new(code: i64) -> Self {
        Self {
            legacy: legacy_code(code),
            stateless: code,
        }
    }

    /// The code for a caller of this version.
    #[must_use]
    pub(crate) fn for_version(self, version: Version) -> i64 {
        match version.family() {
            ProtocolFamily::Legacy => self.legacy,
            ProtocolFamily::Stateless => self.stateless,
        }
    }
}

/// A row, in the order of its columns.
pub(super) fn row(
    jsonrpc: JsonRpcCode,
    http_status: u16,
    mgp: Option<Code>,
    (outcome, failure): Ended,
    reason: RefusalReason,
    owner_cause: OwnerRefusalCause,
    call_outcome: CallOutcome,
) -> RefusalSpec {
    RefusalSpec {
        jsonrpc,
        http_status: Some(http_status),
        mgp,
        outcome,
        failure,
        reason,
        owner_cause,
        call_outcome,
    }
}

/// The row of a relayed error.
pub(super) fn relayed_row(
    (outcome, failure): Ended,
    reason: RefusalReason,
    owner_cause: OwnerRefusalCause,
    call_outcome: CallOutcome,
) -> RefusalSpec {
    RefusalSpec {
        jsonrpc: INTERNAL,
        http_status: None,
        mgp: None,
        outcome,
        failure,
        reason,
        owner_cause,
        call_outcome,
    }
}

/// The code for a server in one of MGP's states (MGP §11.2).
fn code_for_state(state: &str) -> Code {
    let known = [
        ("draining", Code::ServerDraining),
        ("restarting", Code::ServerRestarting),
    ];
    let named = known.into_iter().find(|(name, _)| *name == state);
    named.map_or(Code::ServerNotReady, |(_, code)| code)
}

impl Refusal {
    /// The row of this refusal. An unanswered call has that of its cause, with the known outcome.
    #[rustfmt::skip]
    #[must_use]
    pub fn spec(&self) -> RefusalSpec {
        use CallOutcome::{Done, NotExecuted, Unknown};
        use Code as Mgp;
        use OwnerRefusalCause as Cause;
        use RefusalReason as Reason;
        match self {
            //                                              JSON-RPC    HTTP  MGP                             audit      metric                owner's cause       call
            Self::UnknownMethod(_) =>                   row(METHOD,     404,  None,                           BLOCKED,   Reason::Unknown,      Cause::Blocked,     NotExecuted),
            Self::BadParams(_) =>                       row(PARAMS,     200,  None,                           BLOCKED,   Reason::BadRequest,   Cause::Blocked,     NotExecuted),
            Self::BadMeta(_) =>                         row(PARAMS,     400,  None,                           BLOCKED,   Reason::BadRequest,   Cause::Blocked,     NotExecuted),
            Self::HeaderMismatch(_) =>                  row(HEADER,     400,  None,                           BLOCKED,   Reason::BadRequest,   Cause::Blocked,     NotExecuted),
            Self::MissingCapability { .. } =>           row(CAPABILITY, 400,  None,                           BLOCKED,   Reason::BadRequest,   Cause::Blocked,     NotExecuted),
            Self::UnsupportedVersion { .. } =>          row(VERSION,    400,  None,                           BLOCKED,   Reason::BadRequest,   Cause::Blocked,     NotExecuted),
            // Its `requestState` belongs to an earlier call.
            Self::Expired(_) =>                         row(PARAMS,     200,  None,                           PROTOCOL,  Reason::Unknown,      Cause::Failed,      Unknown),
            Self::BadRequest(_) =>                      row(REQUEST,    400,  None,                           BLOCKED,   Reason::BadRequest,   Cause::Blocked,     NotExecuted),
            Self::UnknownTool(_) =>                     row(PARAMS,     200,  Some(Mgp::ToolNotFound),        BLOCKED,   Reason::Unknown,      Cause::NotFound,    NotExecuted),
            Self::UnknownPrompt(_) =>                   row(PARAMS,     200,  None,                           BLOCKED,   Reason::Unknown,      Cause::NotFound,    NotExecuted),
            Self::UnknownResource(_) =>                 row(RESOURCE,   200,  None,                           BLOCKED,   Reason::Unknown,      Cause::NotFound,    NotExecuted),
            Self::UnknownServer(_) =>                   row(PARAMS,     200,  None,                           BLOCKED,   Reason::Unknown,      Cause::Unavailable, NotExecuted),
            Self::UnknownId(_) =>                       row(PARAMS,     200,  Some(Mgp::ResourceNotFound),    BLOCKED,   Reason::Unknown,      Cause::Blocked,     NotExecuted),
            Self::WindowExpired(_) =>                   row(PARAMS,     200,  Some(Mgp::Timeout),             BLOCKED,   Reason::Unknown,      Cause::Blocked,     NotExecuted),
            Self::BadCursor =>                          row(PARAMS,     200,  None,                           BLOCKED,   Reason::Unknown,      Cause::Blocked,     NotExecuted),
            Self::BadArguments { .. } =>                row(PARAMS,     200,  Some(Mgp::InvalidToolArgs),     BLOCKED,   Reason::Schema,       Cause::Blocked,     NotExecuted),
            Self::BadResult { .. } =>                   row(INTERNAL,   200,  Some(Mgp::UpstreamError),       PROTOCOL,  Reason::BadResult,    Cause::Failed,      Done),
            Self::NotReady { unreachable: true, .. } => row(INTERNAL,   200,  Some(Mgp::UpstreamUnavailable), TRANSPORT, Reason::NotReady,     Cause::Unavailable, NotExecuted),
            Self::NotReady { state, .. } =>             row(INTERNAL,   200,  Some(code_for_state(state)),    TRANSPORT, Reason::NotReady,     Cause::Unavailable, NotExecuted),
            Self::ServerLost { .. } =>                  row(INTERNAL,   200,  Some(Mgp::UpstreamUnavailable), TRANSPORT, Reason::Lost,         Cause::Unavailable, Unknown),
            Self::InvalidAnswer { .. } =>               row(INTERNAL,   200,  Some(Mgp::UpstreamError),       PROTOCOL,  Reason::Faulty,       Cause::Failed,      Unknown),
            Self::TimedOut { remote: true, .. } =>      row(INTERNAL,   200,  Some(Mgp::UpstreamTimeout),     TIMEOUT,   Reason::Timeout,      Cause::TimedOut,    Unknown),
            Self::TimedOut { remote: false, .. } =>     row(INTERNAL,   200,  Some(Mgp::Timeout),             TIMEOUT,   Reason::Timeout,      Cause::TimedOut,    Unknown),
            Self::QueueTimeout { .. } =>                row(INTERNAL,   200,  Some(Mgp::Timeout),             TIMEOUT,   Reason::QueueTimeout, Cause::Unavailable, NotExecuted),
            Self::Overloaded { .. } =>                  row(INTERNAL,   200,  Some(Mgp::ResourceExhausted),   BLOCKED,   Reason::Overloaded,   Cause::Unavailable, NotExecuted),
            Self::TooLarge { .. } =>                    row(INTERNAL,   200,  Some(Mgp::ResourceExhausted),   PROTOCOL,  Reason::Faulty,       Cause::Failed,      Done),
            Self::Undelivered { .. } =>                 row(INTERNAL,   200,  Some(Mgp::ResourceExhausted),   PROTOCOL,  Reason::Overloaded,   Cause::Failed,      Done),
            Self::Withheld { .. } =>                    row(INTERNAL,   200,  Some(Mgp::PermissionDenied),    PROTOCOL,  Reason::Forbidden,    Cause::Failed,      Done),
            Self::Forbidden(_) =>                       row(INTERNAL,   200,  Some(Mgp::PermissionDenied),    DENIED,    Reason::Forbidden,    Cause::Denied,      NotExecuted),
            Self::ClosedByOwner(_) =>                   row(INTERNAL,   200,  Some(Mgp::PermissionDenied),    DENIED,    Reason::Forbidden,    Cause::Closed,      NotExecuted),
            // MGP has no code for a cancelled request, so the timeout code is used.
            Self::Cancelled =>                          row(INTERNAL,   200,  Some(Mgp::Timeout),             CANCELLED, Reason::Cancelled,    Cause::Failed,      Unknown),
            Self::Internal(_) =>                        row(INTERNAL,   200,  None,                           PROTOCOL,  Reason::Internal,     Cause::Failed,      Unknown),
            Self::Peer(_) =>                        relayed_row(PROTOCOL, Reason::PeerError, Cause::Failed, Done),
            Self::Unattributed(_) =>                relayed_row(PROTOCOL, Reason::PeerError, Cause::Failed, Unknown),
            Self::Owner(refusal) =>                 refusal.spec(),
            Self::Denied(denial) =>                 denial.spec(),
            Self::Rejected(rejection) =>            rejection.refusal.spec(),
            Self::Unanswered(call) =>               RefusalSpec { call_outcome: call.outcome, ..call.refusal.spec() },
        }
    }
}

impl OwnerRefusal {
    /// The row of this refusal. An executed call was neither blocked nor denied.
    #[rustfmt::skip]
    pub(super) fn spec(&self) -> RefusalSpec {
        use OwnerRefusalCause as Cause;
        use RefusalReason as Reason;
        let unmade = self.outcome == CallOutcome::NotExecuted;
        let row = |ended, reason, cause| relayed_row(ended, reason, cause, self.outcome);
        match self.cause {
            //                                      audit      metric              cause for a further node
            Cause::Closed if unmade =>          row(DENIED,    Reason::Forbidden,  Cause::Denied),
            Cause::Closed =>                    row(PROTOCOL,  Reason::Forbidden,  Cause::Failed),
            Cause::NotFound if unmade =>        row(BLOCKED,   Reason::Unknown,    Cause::Blocked),
            Cause::NotFound =>                  row(PROTOCOL,  Reason::Unknown,    Cause::Failed),
            Cause::Denied if unmade =>          row(DENIED,    Reason::Forbidden,  Cause::Denied),
            Cause::Denied =>                    row(PROTOCOL,  Reason::Forbidden,  Cause::Failed),
            Cause::Blocked if unmade =>         row(BLOCKED,   Reason::BadRequest, Cause::Blocked),
            Cause::Blocked =>                   row(PROTOCOL,  Reason::BadRequest, Cause::Failed),
            Cause::Unavailable =>               row(TRANSPORT, Reason::NotReady,   Cause::Failed),
            Cause::TimedOut =>                  row(TIMEOUT,   Reason::Timeout,    Cause::TimedOut),
            Cause::Failed =>                    row(PROTOCOL,  Reason::Faulty,     Cause::Failed),
        }
    }
}

#[cfg(test)]
mod tests;
