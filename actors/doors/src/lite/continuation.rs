//! The continuation in an `elicitation` answer: the sealed suspended call, and the callback that was shown.
//! The repeated call with this token resumes the suspended one; nothing is executed twice.

use bytestring::ByteString;
use mgp_callers::request::server_input_required::render_next_round;
use mgp_engine::callers::request_state::RequestState;
use mgp_engine::callers::seal::Purpose;
use mgp_json::quote;
use mgp_protocol::lite::elicitation::LiteElicitation;
use mgp_protocol::lite::error::{LiteError, LiteErrorKind};
use mgp_protocol::mcp::{self, tools};
use serde_json::value::RawValue;

use super::request::LiteRequest;
use super::resumptions::Resume;
use super::{Lite, LiteCaller};

/// The separator of the two parts, which contain none.
const SEPARATOR: char = '~';

/// Joins the reference to the call and the name of the callback.
pub(super) fn join(back: &str, key: &str) -> String {
    format!("{back}{SEPARATOR}{key}")
}

/// Splits a continuation into its two parts.
pub(super) fn split(continuation: &str) -> (&str, Option<&str>) {
    match continuation.split_once(SEPARATOR) {
        Some((back, key)) => (back, Some(key)),
        None => (continuation, None),
    }
}

impl Lite {
    /// The resumption of the call of this request's continuation, now or earlier; `None` for a new call,
    /// and for an unknown continuation.
    pub(super) fn find_resumption(
        &self,
        caller: &LiteCaller,
        request: &LiteRequest,
    ) -> Option<Resume<'_>> {
        let caller = caller.principal();
        let (state, _) = split(request.continuation.as_deref()?);
        let opened = self
            .stateless
            .seal
            .open(Purpose::RequestState, &caller, state);
        let opened: RequestState = opened.ok()?;
        if opened.boot != self.stateless.boot {
            return None;
        }
        let waits = self.stateless.suspended.pending_input(opened.call, &caller);
        let asked = (&*caller, &*request.name);
        self.resumptions.resume(opened.call, asked, waits.is_some())
    }

    /// Renders the params that resume the suspended call with this request's answer.
    pub(super) fn resume_params(
        &self,
        caller: &LiteCaller,
        request: &LiteRequest,
        continuation: &str,
    ) -> Result<ByteString, LiteError> {
        let caller = caller.principal();
        let (state, key) = split(continuation);
        let opened: RequestState = self
            .stateless
            .seal
            .open(Purpose::RequestState, &caller, state)
            .map_err(|_| expired_error())?;
        if opened.boot != self.stateless.boot {
            return Err(expired_error());
        }
        let waiting = self.stateless.suspended.pending_input(opened.call, &caller);
        let (first, asked) = waiting.ok_or_else(expired_error)?;
        let first = first.as_deref().unwrap_or("{}");
        let of_call: tools::Call<'_> =
            mcp::parse_params(Some(first)).map_err(|_| expired_error())?;
        let name: String = serde_json::from_str(of_call.name.get()).unwrap_or_default();
        if name != request.name {
            return Err(wrong_tool_error());
        }
        let question = LiteElicitation::find(&asked, key);
        let answers = question.and_then(|question| {
            question.render_response(&request.arguments, request.elicitation.as_deref())
        });
        let state = RawValue::from_string(quote(state)).ok();
        let answers = answers.unwrap_or_else(|| "{}".to_owned());
        Ok(render_next_round(first, &answers, state.as_deref()).into())
    }
}

pub(super) fn wrong_tool_error() -> LiteError {
    let message = "the continuation belongs to a call of another tool";
    LiteError::new(LiteErrorKind::InvalidParams, message)
}

/// One error for a continuation that never existed, has expired, or belongs to another caller.
fn expired_error() -> LiteError {
    let message = "Unknown continuation: the call was answered, waited too long, or was never this caller's; make the call anew, without it";
    LiteError::new(LiteErrorKind::InvalidParams, message)
}
