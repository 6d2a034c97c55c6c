//! Bodies: replies of a listener, and reading a peer's body.

mod reply;
mod request;

use std::error::Error;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body::Body;
use http_body_util::BodyExt;
use mgp_protocol::framing::EDGE_LEN;
use tokio::time::timeout;

use super::root_cause;
use crate::budget::MessageBudget;

pub use reply::{AbortTrailers, ReplyBody};
pub use request::RequestBody;

/// Most bytes that a `Content-Length` alone reserves; a longer body is stored as it arrives.
const TRUSTED: usize = 1 << 20;

/// Most bytes of a rejected body that are read anyway.
const DISCARD_BYTES_MAX: usize = 64 << 20;

/// How long a rejected body is read anyway.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a body could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Longer than the limit; the rest was not read.
    #[error("the body is longer than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// It did not end in time.
    #[error("the body did not come within {within:?}")]
    TooSlow {
        /// The time limit.
        within: Duration,
    },
    /// Incomplete messages use all bytes of the budget; the rest was not read.
    #[error("there is no room for the body")]
    OverBudget,
    /// The connection ended, or the framing is wrong.
    #[error("the body broke off: {0}")]
    Broken(String),
}

impl BodyError {
    /// The status of the reply to a request with such a body.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::OverBudget => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken(_) => StatusCode::BAD_REQUEST,
        }
    }
}

/// A rejected body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedBody {
    /// The reason.
    pub error: BodyError,
    /// The parts in which its sender may have put the message id.
    pub excerpt: BodyExcerpt,
}

/// The first and the last bytes of a body, at most [`EDGE_LEN`] of each; empty if it was not rejected for its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyExcerpt {
    /// The first bytes.
    pub head: Vec<u8>,
    /// The last bytes that arrived.
    pub tail: Vec<u8>,
}

impl BodyExcerpt {
    fn record(&mut self, bytes: &[u8]) {
        let missing = EDGE_LEN.saturating_sub(self.head.len());
        self.head
            .extend_from_slice(&bytes[..bytes.len().min(missing)]);
        let last = &bytes[bytes.len().saturating_sub(EDGE_LEN)..];
        self.tail.extend_from_slice(last);
        self.tail.drain(..self.tail.len().saturating_sub(EDGE_LEN));
    }
}

/// Reads a body of at most `limit` bytes. One that does not arrive in one piece reserves memory of `budget` as it
/// arrives, until its last part is dropped. A body in one piece is not copied. The rest of a rejected one is discarded,
/// up to a bound: a client that still writes when its connection is closed never reads the reason.
///
/// # Errors
/// [`RejectedBody`]; `within` is the time limit of the whole body.
pub async fn collect<B>(
    mut body: B,
    limit: usize,
    within: Duration,
    budget: impl FnOnce() -> MessageBudget,
) -> Result<Bytes, RejectedBody>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Error + 'static,
{
    let (mut budget, mut reservation, mut excerpt) = (Some(budget), None, BodyExcerpt::default());
    let reserve = |bytes| {
        reservation = reservation
            .take()
            .or_else(|| Some(budget.take()?().reserve()));
        reservation
            .as_mut()
            .is_some_and(|reservation| reservation.grow_to(bytes))
    };
    let taken = timeout(within, read_chunks(&mut body, limit, reserve, &mut excerpt)).await;
    match taken.unwrap_or(Err(BodyError::TooSlow { within })) {
        Ok(whole) => Ok(match reservation {
            Some(reservation) => reservation.attach_to(whole),
            None => whole,
        }),
        Err(why) => {
            drop(reservation);
            if matches!(why, BodyError::TooLarge { .. } | BodyError::OverBudget) {
                let _ = timeout(DISCARD_TIMEOUT, discard_rest(&mut body, &mut excerpt)).await;
            }
            Err(RejectedBody {
                error: why,
                excerpt,
            })
        }
    }
}

async fn discard_rest<B>(body: &mut B, excerpt: &mut BodyExcerpt)
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Error + 'static,
{
    let mut left = DISCARD_BYTES_MAX;
    while let Ok(Some(bytes)) = next_data(body).await {
        excerpt.record(&bytes);
        match left.checked_sub(bytes.len()) {
            Some(less) => left = less,
            None => return,
        }
    }
}

/// As [`collect`], for callers with their own deadline and bound.
pub(super) async fn read_to_end<B>(mut body: B, limit: usize) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Error + 'static,
{
    read_chunks(&mut body, limit, |_| true, &mut BodyExcerpt::default()).await
}

/// Calls `reserve` with the length whenever another piece follows; it returns whether that much memory is available.
/// Discarded bytes are recorded in `excerpt`.
async fn read_chunks<B>(
    body: &mut B,
    limit: usize,
    mut reserve: impl FnMut(usize) -> bool,
    excerpt: &mut BodyExcerpt,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Error + 'static,
{
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(BodyError::TooLarge { limit });
    }
    let Some(first) = next_data(body).await? else {
        return Ok(Bytes::new());
    };
    if first.len() > limit {
        excerpt.record(&first);
        return Err(BodyError::TooLarge { limit });
    }
    if body.is_end_stream() {
        return Ok(first);
    }
    if !reserve(first.len()) {
        excerpt.record(&first);
        return Err(BodyError::OverBudget);
    }
    let Some(second) = next_data(body).await? else {
        return Ok(first);
    };
    let mut whole = BytesMut::with_capacity(announced.min(TRUSTED).max(first.len() * 2));
    whole.extend_from_slice(&first);
    let mut more = Some(second);
    while let Some(bytes) = more {
        let refused = match whole.len() + bytes.len() {
            len if len > limit => Some(BodyError::TooLarge { limit }),
            len => (!reserve(len)).then_some(BodyError::OverBudget),
        };
        if let Some(refused) = refused {
            excerpt.record(&whole);
            excerpt.record(&bytes);
            return Err(refused);
        }
        whole.extend_from_slice(&bytes);
        more = next_data(body).await?;
    }
    Ok(whole.freeze())
}

/// The next bytes of a body; trailers are skipped.
pub(super) async fn next_data<B>(body: &mut B) -> Result<Option<Bytes>, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Error + 'static,
{
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|e| BodyError::Broken(root_cause(&e)))?;
        if let Ok(bytes) = frame.into_data() {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use mgp_sync::Credit;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn pieces(all: &[&'static str]) -> impl Body<Data = Bytes, Error = Infallible> + Unpin + use<> {
        let frame = |piece: &&'static str| Ok(Frame::data(Bytes::from_static(piece.as_bytes())));
        StreamBody::new(stream::iter(all.iter().map(frame).collect::<Vec<_>>()))
    }

    #[tokio::test]
    async fn a_body_in_one_piece_is_not_copied() {
        let piece = Bytes::from_static(b"{\"a\":1}");
        let body = collect(ReplyBody::full(piece.clone()), 7, DAY, || {
            panic!("it reserves no memory")
        })
        .await
        .unwrap();
        assert_eq!(body.as_ptr(), piece.as_ptr());
    }

    #[tokio::test]
    async fn pieces_are_joined_up_to_the_limit() {
        let all = ["{\"a\"", ":", "", "1}"];
        let taken = |pieces, limit| {
            let taken = collect(pieces, limit, DAY, || budget(1 << 20));
            async { taken.await.map_err(|rejected| rejected.error) }
        };
        assert_eq!(taken(pieces(&all), 7).await.unwrap(), "{\"a\":1}");
        let too_large = Err(BodyError::TooLarge { limit: 6 });
        assert_eq!(taken(pieces(&all), 6).await, too_large);
        assert_eq!(taken(pieces(&["1234567"]), 6).await, too_large);
        let announced = collect(ReplyBody::full("1234567"), 6, DAY, || budget(1 << 20));
        let announced = announced.await.map_err(|rejected| rejected.error);
        assert_eq!(announced, too_large);
        assert_eq!(taken(pieces(&[]), 0).await.unwrap(), "");
    }

    /// A rejection names the id of the message, which clients write first or last.
    #[tokio::test]
    async fn both_ends_of_a_rejected_body_are_recorded() {
        let long = String::leak("x".repeat(EDGE_LEN));
        let all = ["{\"id\":1,", long, long, ",\"id\"", ":1}"];
        let whole = all.concat();
        for limit in [0, 20, EDGE_LEN, 2 * EDGE_LEN + 12] {
            let rejected = collect(pieces(&all), limit, DAY, || budget(1 << 20)).await;
            let excerpt = rejected.unwrap_err().excerpt;
            assert_eq!(excerpt.head, whole.as_bytes()[..EDGE_LEN], "{limit}");
            assert!(whole.as_bytes().ends_with(&excerpt.tail) && excerpt.tail.len() == EDGE_LEN);
        }
        let none = collect(pieces(&all), 1 << 20, DAY, || budget(0)).await;
        assert_eq!(none.unwrap_err().excerpt.head, whole.as_bytes()[..EDGE_LEN]);
    }

    fn budget(bytes: u64) -> MessageBudget {
        let credit = Credit::new(bytes);
        MessageBudget::new(credit.clone(), credit)
    }

    /// Memory is bounded whatever length was announced; a complete body stays counted until it is dropped.
    #[tokio::test]
    async fn a_body_reserves_memory_as_it_arrives_until_it_is_dropped() {
        let credit = Credit::new(64 << 10);
        let budget = || MessageBudget::new(credit.clone(), Credit::new(1 << 20));
        let part: &'static str = String::leak("x".repeat(20 << 10));
        let taken = |count| collect(pieces(&vec![part; count]), 1 << 20, DAY, budget);
        let whole = taken(2).await.unwrap();
        assert_eq!((whole.len(), credit.in_use_amount()), (40 << 10, 48 << 10));
        drop(whole);
        assert_eq!(taken(4).await.unwrap_err().error, BodyError::OverBudget);
        assert_eq!(credit.in_use_amount(), 0);
    }

    /// A body that arrives slowly and never ends.
    #[tokio::test(start_paused = true)]
    async fn a_trickling_body_times_out() {
        let trickle = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Bytes::from_static(b"x"), ()))
        });
        let within = Duration::from_secs(10);
        let late = collect(ReplyBody::stream(trickle), 1 << 20, within, || {
            budget(1 << 20)
        })
        .await;
        assert_eq!(late.unwrap_err().error, BodyError::TooSlow { within });
    }
}
