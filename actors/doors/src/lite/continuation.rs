//! The continuation in an `elicitation` answer: which call waits, sealed, and which of its questions was shown. The
//! call made again with it resumes the one that waits; nothing is done twice.

use bytestring::ByteString;
use mgp_callers::request::input_required::next_round;
use mgp_engine::callers::request_state::RequestState;
use mgp_engine::callers::seal::Purpose;
use mgp_protocol::lite::error::{LiteError, LiteErrorKind};
use mgp_protocol::lite::question::LiteQuestion;
use mgp_protocol::mcp::{self, tools};
use mgp_protocol::splice::quoted;
use serde_json::value::RawValue;

use super::request::LiteRequest;
use super::resumptions::Resumed;
use super::{Lite, LiteCaller};

/// Between the two parts; stands in neither.
const BETWEEN: char = '~';

/// Joins what leads back and the name of the question.
pub(super) fn joined(back: &str, key: &str) -> String {
    format!("{back}{BETWEEN}{key}")
}

/// The two parts.
pub(super) fn parts(continuation: &str) -> (&str, Option<&str>) {
    match continuation.split_once(BETWEEN) {
        Some((back, key)) => (back, Some(key)),
        None => (continuation, None),
    }
}

impl Lite {
    /// How the call of this request's continuation goes on, or went on before; `None` for a new call, and for a
    /// continuation that leads nowhere.
    pub(super) fn find_resumption(
        &self,
        who: &LiteCaller,
        request: &LiteRequest,
    ) -> Option<Resumed<'_>> {
        let caller = who.principal();
        let (state, _) = parts(request.continuation.as_deref()?);
        let opened = self.stateless.seal.open(Purpose::State, &caller, state);
        let opened: RequestState = opened.ok()?;
        if opened.boot != self.stateless.boot {
            return None;
        }
        let waits = self.stateless.suspended.asked(opened.call, &caller);
        let asked = (&*caller, &*request.name);
        self.resumptions.enter(opened.call, asked, waits.is_some())
    }

    /// The params by which the waiting call goes on with what this request answers.
    pub(super) fn resumed(
        &self,
        who: &LiteCaller,
        request: &LiteRequest,
        continuation: &str,
    ) -> Result<ByteString, LiteError> {
        let caller = who.principal();
        let (state, key) = parts(continuation);
        let opened: RequestState = self
            .stateless
            .seal
            .open(Purpose::State, &caller, state)
            .map_err(|_| over())?;
        if opened.boot != self.stateless.boot {
            return Err(over());
        }
        let waiting = self.stateless.suspended.asked(opened.call, &caller);
        let (first, asked) = waiting.ok_or_else(over)?;
        let first = first.as_deref().unwrap_or("{}");
        let of_call: tools::Call<'_> = mcp::read(Some(first)).map_err(|_| over())?;
        let name: String = serde_json::from_str(of_call.name.get()).unwrap_or_default();
        if name != request.name {
            return Err(of_another_tool());
        }
        let question = LiteQuestion::of(&asked, key);
        let answers = question.and_then(|question| {
            question.answered(&request.arguments, request.elicitation.as_deref())
        });
        let state = RawValue::from_string(quoted(state)).ok();
        let answers = answers.unwrap_or_else(|| "{}".to_owned());
        Ok(next_round(first, &answers, state.as_deref()).into())
    }
}

pub(super) fn of_another_tool() -> LiteError {
    let words = "the continuation belongs to a call of another tool";
    LiteError::new(LiteErrorKind::InvalidParams, words)
}

/// The same words for what never was, is over, or is another caller's.
fn over() -> LiteError {
    let words = "Unknown continuation: the call was answered, waited too long, or was never this caller's; make the call anew, without it";
    LiteError::new(LiteErrorKind::InvalidParams, words)
}
