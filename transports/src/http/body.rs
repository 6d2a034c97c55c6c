//! Bodies: what a door replies with, and how a peer's body is taken whole.

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

/// Most bytes set aside because of a `Content-Length` alone; a longer body has to come to be kept.
const TRUSTED: usize = 1 << 20;

/// Most bytes of a refused body that are read all the same.
const DISCARD_BYTES_MAX: usize = 64 << 20;

/// How long a refused body is read all the same.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a body could not be taken whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Longer than allowed; the rest was not read.
    #[error("the body is longer than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// Did not end in time.
    #[error("the body did not come within {within:?}")]
    TooSlow {
        /// The time it had.
        within: Duration,
    },
    /// Messages under way hold all the bytes they may; the rest was not read.
    #[error("there is no room for the body")]
    OverBudget,
    /// The connection broke off, or the framing is wrong.
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

/// A body that was not taken: why, and what was seen of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedBody {
    /// The reason.
    pub error: BodyError,
    /// Where its sender may have said what it is about.
    pub excerpt: BodyExcerpt,
}

/// The first and the last bytes of a body, at most [`DISCARDED_LINE_MAX`] of each; none of one that was not refused
/// for its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyExcerpt {
    /// The first.
    pub head: Vec<u8>,
    /// The last that came.
    pub tail: Vec<u8>,
}

impl BodyExcerpt {
    fn record(&mut self, bytes: &[u8]) {
        let room = EDGE_LEN.saturating_sub(self.head.len());
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let last = &bytes[bytes.len().saturating_sub(EDGE_LEN)..];
        self.tail.extend_from_slice(last);
        self.tail.drain(..self.tail.len().saturating_sub(EDGE_LEN));
    }
}

/// Takes a body of at most `limit` bytes whole; one that does not come in one piece takes `room` as it
/// comes, until nobody holds a part of it any more. What came in one piece is not copied. Of a longer one
/// the rest is passed over, up to a bound: a client that still writes when its connection is closed
/// never reads why.
///
/// # Errors
/// [`RejectedBody`]; `within` is the time for the whole body, however busily it trickles.
pub async fn collect<B>(
    mut body: B,
    limit: usize,
    within: Duration,
    room: impl FnOnce() -> MessageBudget,
) -> Result<Bytes, RejectedBody>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Error + 'static,
{
    let (mut room, mut held, mut ends) = (Some(room), None, BodyExcerpt::default());
    let reach = |bytes| {
        held = held.take().or_else(|| Some(room.take()?().reserve()));
        held.as_mut().is_some_and(|held| held.grow_to(bytes))
    };
    let taken = timeout(within, read_chunks(&mut body, limit, reach, &mut ends)).await;
    match taken.unwrap_or(Err(BodyError::TooSlow { within })) {
        Ok(whole) => Ok(match held {
            Some(held) => held.attach_to(whole),
            None => whole,
        }),
        Err(why) => {
            drop(held);
            if matches!(why, BodyError::TooLarge { .. } | BodyError::OverBudget) {
                let _ = timeout(DISCARD_TIMEOUT, discard_rest(&mut body, &mut ends)).await;
            }
            Err(RejectedBody {
                error: why,
                excerpt: ends,
            })
        }
    }
}

async fn discard_rest<B>(body: &mut B, ends: &mut BodyExcerpt)
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Error + 'static,
{
    let mut left = DISCARD_BYTES_MAX;
    while let Ok(Some(bytes)) = next_data(body).await {
        ends.record(&bytes);
        match left.checked_sub(bytes.len()) {
            Some(less) => left = less,
            None => return,
        }
    }
}

/// As [`collect`], for callers with a deadline and a bound of their own.
pub(super) async fn read_to_end<B>(mut body: B, limit: usize) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Error + 'static,
{
    read_chunks(&mut body, limit, |_| true, &mut BodyExcerpt::default()).await
}

/// `reach` is told how much there is whenever more is waited for, and whether there is room for it; what
/// is thrown away goes by `ends`.
async fn read_chunks<B>(
    body: &mut B,
    limit: usize,
    mut reach: impl FnMut(usize) -> bool,
    ends: &mut BodyExcerpt,
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
        ends.record(&first);
        return Err(BodyError::TooLarge { limit });
    }
    if body.is_end_stream() {
        return Ok(first);
    }
    if !reach(first.len()) {
        ends.record(&first);
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
            len => (!reach(len)).then_some(BodyError::OverBudget),
        };
        if let Some(refused) = refused {
            ends.record(&whole);
            ends.record(&bytes);
            return Err(refused);
        }
        whole.extend_from_slice(&bytes);
        more = next_data(body).await?;
    }
    Ok(whole.freeze())
}

/// The next bytes of a body; trailers are passed over.
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
    use mgp_sync::credit::Credit;

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
            panic!("it takes no room")
        })
        .await
        .unwrap();
        assert_eq!(body.as_ptr(), piece.as_ptr());
    }

    #[tokio::test]
    async fn pieces_are_joined_up_to_the_limit() {
        let all = ["{\"a\"", ":", "", "1}"];
        let taken = |pieces, limit| {
            let taken = collect(pieces, limit, DAY, || room(1 << 20));
            async { taken.await.map_err(|untaken| untaken.error) }
        };
        assert_eq!(taken(pieces(&all), 7).await.unwrap(), "{\"a\":1}");
        let too_large = Err(BodyError::TooLarge { limit: 6 });
        assert_eq!(taken(pieces(&all), 6).await, too_large);
        assert_eq!(taken(pieces(&["1234567"]), 6).await, too_large);
        let announced = collect(ReplyBody::full("1234567"), 6, DAY, || room(1 << 20));
        let announced = announced.await.map_err(|untaken| untaken.error);
        assert_eq!(announced, too_large);
        assert_eq!(taken(pieces(&[]), 0).await.unwrap(), "");
    }

    /// Who is refused is told under the id of its message, which clients write first or last.
    #[tokio::test]
    async fn both_ends_of_a_refused_body_are_seen() {
        let long = String::leak("x".repeat(EDGE_LEN));
        let all = ["{\"id\":1,", long, long, ",\"id\"", ":1}"];
        let whole = all.concat();
        for limit in [0, 20, EDGE_LEN, 2 * EDGE_LEN + 12] {
            let untaken = collect(pieces(&all), limit, DAY, || room(1 << 20)).await;
            let ends = untaken.unwrap_err().excerpt;
            assert_eq!(ends.head, whole.as_bytes()[..EDGE_LEN], "{limit}");
            assert!(whole.as_bytes().ends_with(&ends.tail) && ends.tail.len() == EDGE_LEN);
        }
        let none = collect(pieces(&all), 1 << 20, DAY, || room(0)).await;
        assert_eq!(none.unwrap_err().excerpt.head, whole.as_bytes()[..EDGE_LEN]);
    }

    fn room(bytes: u64) -> MessageBudget {
        let credit = Credit::new(bytes);
        MessageBudget::new(credit.clone(), credit)
    }

    /// What is half sent is bounded whatever was announced; what is whole stays counted while it is held.
    #[tokio::test]
    async fn a_body_takes_room_as_it_comes_and_while_it_is_held() {
        let credit = Credit::new(64 << 10);
        let room = || MessageBudget::new(credit.clone(), Credit::new(1 << 20));
        let part: &'static str = String::leak("x".repeat(20 << 10));
        let taken = |count| collect(pieces(&vec![part; count]), 1 << 20, DAY, room);
        let whole = taken(2).await.unwrap();
        assert_eq!((whole.len(), credit.in_use_amount()), (40 << 10, 48 << 10));
        drop(whole);
        assert_eq!(taken(4).await.unwrap_err().error, BodyError::OverBudget);
        assert_eq!(credit.in_use_amount(), 0);
    }

    /// A body that always comes, and never comes to an end.
    #[tokio::test(start_paused = true)]
    async fn a_trickle_runs_out_of_time() {
        let trickle = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Bytes::from_static(b"x"), ()))
        });
        let within = Duration::from_secs(10);
        let late = collect(ReplyBody::stream(trickle), 1 << 20, within, || {
            room(1 << 20)
        })
        .await;
        assert_eq!(late.unwrap_err().error, BodyError::TooSlow { within });
    }
}
