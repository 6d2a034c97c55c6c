//! The frame of a refusal by the kernel of the called node, in place of its server: distinct from errors,
//! so that nothing is inferred from the error of a server.

use serde_json::value::RawValue;

use crate::federation::message::{self, BadMessage};
use crate::refusal::owner_refusal::OwnerRefusal;

/// Encodes the refusal.
#[must_use]
pub fn encode(refusal: &OwnerRefusal) -> Vec<u8> {
    message::encode(refusal)
}

/// Decodes a refusal.
///
/// # Errors
/// [`BadMessage`], also if the answer is no JSON object.
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
    use crate::refusal::CallOutcome;
    use crate::refusal::owner_refusal::{OwnerAnswer, OwnerRefusalCause};

    fn refusal() -> OwnerRefusal {
        OwnerRefusal {
            cause: OwnerRefusalCause::Unavailable,
            outcome: CallOutcome::NotExecuted,
            answer: OwnerAnswer::Error(r#"{"code":-32603,"message":"away"}"#.to_owned()),
        }
    }

    #[test]
    fn owner_refusal_round_trips() {
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

    /// An unknown cause never allows a failover, and an unknown outcome is unknown.
    #[test]
    fn unknown_causes_and_outcomes_decide_nothing() {
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
}
