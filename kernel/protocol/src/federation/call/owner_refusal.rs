//! The frame of what the kernel of the called node refuses by itself, in the place of its server: apart from errors, so
//! that nothing is ever inferred from the error of a server.

use serde_json::value::RawValue;

use crate::federation::message::{self, BadMessage};
use crate::mgp::audit::Outcome;
use crate::refusal::Refusal;
use crate::refusal::owner_refusal::{OwnerRefusal, OwnerRefusalCause};

/// The cause of a refusal by this kernel.
#[must_use]
pub fn cause(refusal: &Refusal) -> OwnerRefusalCause {
    if let Refusal::Unanswered(call) = refusal {
        return cause(&call.refusal);
    }
    let is_away = matches!(
        refusal,
        Refusal::NotReady { .. }
            | Refusal::ServerLost { .. }
            | Refusal::QueueTimeout { .. }
            | Refusal::Overloaded { .. }
            | Refusal::UnknownServer(_)
    );
    let is_not_found = matches!(
        refusal,
        Refusal::UnknownTool(_) | Refusal::UnknownPrompt(_) | Refusal::UnknownResource(_)
    );
    if is_away {
        return OwnerRefusalCause::Unavailable;
    }
    if is_not_found {
        return OwnerRefusalCause::NotFound;
    }
    match Outcome::from_refusal(refusal).0 {
        Outcome::Denied if matches!(refusal, Refusal::ClosedByOwner(_)) => {
            OwnerRefusalCause::Closed
        }
        Outcome::Denied => OwnerRefusalCause::Denied,
        Outcome::Blocked => OwnerRefusalCause::Blocked,
        Outcome::Timeout => OwnerRefusalCause::TimedOut,
        Outcome::Success | Outcome::Failure | Outcome::Cancelled => OwnerRefusalCause::Failed,
    }
}

/// As on the wire.
#[must_use]
pub fn encode(refusal: &OwnerRefusal) -> Vec<u8> {
    message::encode(refusal)
}

/// Reads one.
///
/// # Errors
/// [`BadMessage`], also where the answer is no JSON object.
pub fn decode(bytes: &[u8]) -> Result<OwnerRefusal, BadMessage> {
    let refusal: OwnerRefusal = message::decode(bytes)?;
    let object = serde_json::from_str::<&RawValue>(refusal.as_json());
    if object.is_ok_and(|json| json.get().starts_with('{')) {
        Ok(refusal)
    } else {
        Err(BadMessage("its answer is no JSON object".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ServerId;
    use crate::refusal::CallOutcome;
    use crate::refusal::owner_refusal::OwnerAnswer;

    fn refusal() -> OwnerRefusal {
        OwnerRefusal {
            cause: OwnerRefusalCause::Unavailable,
            outcome: CallOutcome::NotExecuted,
            answer: OwnerAnswer::Error(r#"{"code":-32603,"message":"away"}"#.to_owned()),
        }
    }

    #[test]
    fn an_owner_refusal_is_read_as_it_was_written() {
        let mut other = refusal();
        other.answer = OwnerAnswer::Result(r#"{"isError":true,"content":[]}"#.to_owned());
        other.outcome = CallOutcome::Done;
        for refusal in [refusal(), other] {
            assert_eq!(decode(&encode(&refusal)), Ok(refusal));
        }
        let mut bad = refusal();
        bad.answer = OwnerAnswer::Error("not JSON".to_owned());
        assert!(decode(&encode(&bad)).is_err());
    }

    /// A cause that is not known never lets the call move on, and an outcome that is not known is unknown.
    #[test]
    fn words_of_a_later_version_decide_nothing() {
        let written = encode(&refusal());
        let replace = |from: &[u8], to: &[u8]| {
            let at = written.windows(from.len()).position(|part| part == from);
            let mut bytes = written.clone();
            bytes[at.unwrap()..][..to.len()].copy_from_slice(to);
            decode(&bytes).unwrap()
        };
        let later = replace(b"unavailable", b"inundation!");
        assert_eq!(later.cause, OwnerRefusalCause::Failed);
        let later = replace(b"not_executed", b"not_imagined");
        assert_eq!(later.outcome, CallOutcome::Unknown);
    }

    /// What another owner may do better is told apart from a decision about this call.
    #[test]
    fn a_refusal_is_told_by_its_cause() {
        let away = Refusal::NotReady {
            server: ServerId::new("s"),
            state: "draining",
            reason: None,
            retry_after_ms: None,
            unreachable: false,
        };
        let cases = [
            (away, OwnerRefusalCause::Unavailable),
            (
                Refusal::ClosedByOwner("no".into()),
                OwnerRefusalCause::Closed,
            ),
            (Refusal::Forbidden("no".into()), OwnerRefusalCause::Denied),
            (
                Refusal::UnknownTool("t".into()),
                OwnerRefusalCause::NotFound,
            ),
            (Refusal::BadParams("p".into()), OwnerRefusalCause::Blocked),
            (Refusal::Cancelled, OwnerRefusalCause::Failed),
        ];
        for (refusal, cause) in cases {
            assert_eq!(super::cause(&refusal), cause, "{refusal}");
        }
    }
}
