//! How answers of a collector are interpreted, and how often an export is retried (OTLP 1.x: "Failures", "Retryable
//! Response Codes", "OTLP/gRPC Throttling").

use std::time::Duration;

use super::otlp::PartialSuccess;
use super::protobuf::{ProtoFields, ProtoValue};

/// Most attempts of an export. The first pause below doubles each time: some 15 s in all, enough for a restart of the
/// collector.
const ATTEMPTS_MAX: u32 = 5;
const BACKOFF_INITIAL: Duration = Duration::from_secs(1);
/// Longest pause that a collector may request: new messages wait in the queue meanwhile, or are dropped there.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The type of the `google.rpc` message with the retry delay.
const RETRY_INFO: &[u8] = b"/google.rpc.RetryInfo";

/// The result of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportResult {
    /// It was accepted, perhaps in part.
    Accepted(Option<PartialSuccess>),
    /// It may be retried, after the delay the collector requests, if any.
    Retryable(Option<Duration>),
    /// It must not be retried.
    NonRetryable,
}

impl ExportResult {
    /// The result of an HTTP answer with this status, `Retry-After` and body.
    #[must_use]
    pub fn from_http(status: u16, retry_after: Option<&str>, body: &[u8]) -> Self {
        match status {
            200..300 => Self::Accepted(PartialSuccess::decode(body)),
            429 | 502 | 503 | 504 => {
                let seconds = retry_after.and_then(|after| after.trim().parse().ok());
                Self::Retryable(seconds.map(Duration::from_secs))
            }
            _ => Self::NonRetryable,
        }
    }

    /// The result of a gRPC answer with this code, raw `google.rpc.Status` and message.
    #[must_use]
    pub fn from_grpc(code: u32, status: &[u8], message: &[u8]) -> Self {
        let asked = retry_delay(status);
        match code_name(code) {
            "OK" => Self::Accepted(PartialSuccess::decode(message)),
            "CANCELLED" | "DEADLINE_EXCEEDED" | "ABORTED" | "OUT_OF_RANGE" | "UNAVAILABLE"
            | "DATA_LOSS" => Self::Retryable(asked),
            // It is retryable only with a retry delay.
            "RESOURCE_EXHAUSTED" if asked.is_some() => Self::Retryable(asked),
            _ => Self::NonRetryable,
        }
    }
}

/// The name of a gRPC code ("Status codes and their use in gRPC").
#[must_use]
pub fn code_name(code: u32) -> &'static str {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    let place = usize::try_from(code).unwrap_or(usize::MAX);
    NAMES.get(place).copied().unwrap_or("UNKNOWN")
}

/// The delay of the `google.rpc.RetryInfo` among the details of a `google.rpc.Status`; a time before now is now.
fn retry_delay(status: &[u8]) -> Option<Duration> {
    let is_retry_info = |any: &&[u8]| {
        let mut names = find_bytes_fields(any, 1);
        names.next().is_some_and(|name| name.ends_with(RETRY_INFO))
    };
    let any = find_bytes_fields(status, 3).find(is_retry_info)?;
    let info = find_bytes_fields(any, 2).next().unwrap_or_default();
    let delay = find_bytes_fields(info, 1).next().unwrap_or_default();
    let number = |field| {
        let found = ProtoFields(delay).find_map(|found| match found {
            (place, ProtoValue::Number(value)) if place == field => Some(value.cast_signed()),
            _ => None,
        });
        u64::try_from(found.unwrap_or(0)).unwrap_or(0)
    };
    let whole = Duration::from_secs(number(1));
    Some(whole.saturating_add(Duration::from_nanos(number(2))))
}

/// The length-delimited values of a field.
fn find_bytes_fields(of: &[u8], field: u64) -> impl Iterator<Item = &[u8]> {
    ProtoFields(of).filter_map(move |found| match found {
        (place, ProtoValue::Bytes(bytes)) if place == field => Some(bytes),
        _ => None,
    })
}

/// The attempts of one export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportBackoff {
    failed: u32,
}

impl ExportBackoff {
    /// The pause after another failed attempt, `None` where the export is given up. `asked` is the delay the
    /// collector requests. Without it the pause varies by a quarter, by `chance`: kernels that lost the same
    /// collector at the same moment do not all come back at once.
    #[must_use]
    pub fn next_delay(&mut self, asked: Option<Duration>, chance: u8) -> Option<Duration> {
        self.failed += 1;
        if self.failed >= ATTEMPTS_MAX {
            return None;
        }
        let doubled = BACKOFF_INITIAL * (1 << (self.failed - 1));
        let about = doubled.mul_f64(0.75 + f64::from(chance) / 512.0);
        Some(asked.unwrap_or(about).min(BACKOFF_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::super::protobuf::ProtoMessage;
    use super::*;

    /// All pauses of a message that is never taken.
    fn pauses(asked: Option<Duration>, chance: u8) -> Vec<Duration> {
        let mut retries = ExportBackoff::default();
        std::iter::from_fn(|| retries.next_delay(asked, chance))
            .take(100)
            .collect()
    }

    /// Decision 0066: five tries, with pauses of about 1, 2, 4 and 8 s.
    #[test]
    fn a_message_is_sent_five_times_with_growing_backoff() {
        for chance in [0, 1, 128, 254, 255] {
            let pauses = pauses(None, chance);
            assert_eq!(pauses.len(), 4, "a message is sent five times");
            for (pause, about) in pauses.iter().zip([1, 2, 4, 8]) {
                let about = Duration::from_secs(about);
                assert!(
                    (about * 3 / 4..about * 5 / 4).contains(pause),
                    "{pause:?} is not about {about:?}"
                );
            }
        }
        assert_ne!(pauses(None, 0), pauses(None, 255), "not all at once");
    }

    /// Decision 0066: a collector may ask for another pause, up to 30 s, and not for more tries.
    #[test]
    fn a_collector_can_delay_retries_by_at_most_30_seconds() {
        for (asked, granted) in [(0, 0), (7, 7), (30, 30), (31, 30), (u64::MAX, 30)] {
            let asked = Some(Duration::from_secs(asked));
            let granted = Duration::from_secs(granted);
            assert_eq!(pauses(asked, 9), [granted; 4], "{asked:?}");
        }
    }

    /// OTLP 1.x, "Retryable Response Codes": four statuses, and no other one.
    #[test]
    fn four_http_statuses_are_retryable() {
        let later = |after| ExportResult::Retryable(after);
        for status in 100..=599 {
            let verdict = ExportResult::from_http(status, Some(" 3 "), b"");
            let due = Some(Duration::from_secs(3));
            match status {
                200..300 => assert_eq!(verdict, ExportResult::Accepted(None), "{status}"),
                429 | 502..=504 => assert_eq!(verdict, later(due), "{status}"),
                _ => assert_eq!(verdict, ExportResult::NonRetryable, "{status}"),
            }
        }
        for odd in ["", "-1", "soon", "Wed, 21 Oct 2026 07:28:00 GMT"] {
            let verdict = ExportResult::from_http(503, Some(odd), b"");
            assert_eq!(verdict, later(None), "{odd:?}");
        }
    }

    fn status(details: &[(&str, Option<(u64, u64)>)]) -> Vec<u8> {
        let mut status = ProtoMessage::default();
        status.write_number(1, 8);
        status.write_bytes(2, b"slow down");
        for (name, delay) in details {
            status.write_message(3, |any| {
                any.write_bytes(1, name.as_bytes());
                any.write_message(2, |info| {
                    if let Some((seconds, nanos)) = delay {
                        info.write_message(1, |delay| {
                            delay.write_number(1, *seconds);
                            delay.write_number(2, *nanos);
                        });
                    }
                });
            });
        }
        status.into_bytes()
    }

    const RETRY: &str = "type.googleapis.com/google.rpc.RetryInfo";

    /// OTLP 1.x, "Failures" of OTLP/gRPC: six codes, and RESOURCE_EXHAUSTED where the collector says when.
    #[test]
    fn six_grpc_codes_are_retryable_and_one_with_a_delay() {
        let throttled = status(&[
            ("type.googleapis.com/google.rpc.ErrorInfo", Some((9, 0))),
            (RETRY, Some((2, 500_000_000))),
        ]);
        let due = Some(Duration::from_millis(2_500));
        for code in 0..=20 {
            let plain = ExportResult::from_grpc(code, b"", b"");
            let told = ExportResult::from_grpc(code, &throttled, b"");
            match code {
                0 => assert_eq!(plain, ExportResult::Accepted(None)),
                1 | 4 | 10 | 11 | 14 | 15 => {
                    assert_eq!(plain, ExportResult::Retryable(None), "{code}");
                    assert_eq!(told, ExportResult::Retryable(due), "{code}");
                }
                8 => {
                    assert_eq!(plain, ExportResult::NonRetryable);
                    assert_eq!(told, ExportResult::Retryable(due));
                }
                _ => assert_eq!(
                    (plain, told),
                    (ExportResult::NonRetryable, ExportResult::NonRetryable)
                ),
            }
        }
        let unsaid = status(&[("type.googleapis.com/google.rpc.ErrorInfo", Some((9, 0)))]);
        assert_eq!(
            ExportResult::from_grpc(8, &unsaid, b""),
            ExportResult::NonRetryable
        );
        assert_eq!([code_name(14), code_name(99)], ["UNAVAILABLE", "UNKNOWN"]);
    }

    /// Times that are none are now, and a torn message says nothing.
    #[test]
    fn any_retry_delay_is_parsed() {
        for (delay, due) in [
            (None, Duration::ZERO),
            (Some((u64::MAX, u64::MAX)), Duration::ZERO),
            (Some((u64::MAX >> 1, 1)), Duration::new(u64::MAX >> 1, 1)),
        ] {
            assert_eq!(retry_delay(&status(&[(RETRY, delay)])), Some(due));
        }
        let whole = status(&[(RETRY, Some((3, 0)))]);
        for end in 0..whole.len() {
            let read = retry_delay(&whole[..end]);
            assert!(
                read.is_none_or(|read| read <= Duration::from_secs(3)),
                "{end}"
            );
        }
    }
}
