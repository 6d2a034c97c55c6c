//! The messages between the kernel and the process that runs the model. All numbers are little-endian:
//!
//! ```text
//! request   lane u8, count u8; each text: length u32, UTF-8
//! answer    kind u8, lane u8, length u32, as many bytes
//! ```

use std::io::{self, ErrorKind, Read};

use mgp_embedding::{BYTES_MAX, DIMENSION};

/// Texts in one request: the most that the model embeds together.
pub(super) const TEXTS_MAX: usize = 16;
/// Bytes of an answer: a vector for each text.
const ANSWER_MAX: usize = TEXTS_MAX * VECTOR;
/// Bytes of a vector.
const VECTOR: usize = DIMENSION * size_of::<f32>();

const READY: u8 = 0;
const VECTORS: u8 = 1;
const FAILED: u8 = 2;

/// The lane. Each has a thread at both ends, and at most one request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EmbeddingLane {
    /// Queries, for which a caller waits.
    Requests,
    /// Tools, for which nobody waits.
    Tools,
}

impl EmbeddingLane {
    pub(super) const ALL: [Self; 2] = [Self::Requests, Self::Tools];

    /// The name of the lane's thread.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tools => "tools",
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// Texts to be embedded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EmbedRequest {
    pub(super) lane: EmbeddingLane,
    pub(super) texts: Vec<String>,
}

/// Encodes a request with at most [`TEXTS_MAX`] texts, each truncated to the length that the model reads.
pub(super) fn encode_request(lane: EmbeddingLane, texts: &[&str]) -> Vec<u8> {
    let texts = &texts[..texts.len().min(TEXTS_MAX)];
    let mut out = vec![lane as u8, texts.len() as u8];
    for text in texts {
        let text = &text[..text.floor_char_boundary(BYTES_MAX)];
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    out
}

impl EmbedRequest {
    /// The next request; `None` at the end.
    ///
    /// # Errors
    /// Read errors, and malformed bytes.
    pub(super) fn read_from(reader: &mut impl Read) -> io::Result<Option<Self>> {
        let Some([lane, count]) = read_head(reader)? else {
            return Ok(None);
        };
        let lane = EmbeddingLane::from_byte(lane).ok_or_else(malformed_error)?;
        let count = check_count(usize::from(count), TEXTS_MAX)?;
        let texts = (0..count).map(|_| {
            let length = check_count(read_length(reader)?, BYTES_MAX)?;
            String::from_utf8(read_bytes(reader, length)?).map_err(|_| malformed_error())
        });
        let texts = texts.collect::<io::Result<_>>()?;
        Ok(Some(Self { lane, texts }))
    }
}

/// A message of the process.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EmbedReply {
    /// The model is loaded. Names the restrictions of the process that could not be applied.
    Ready(String),
    /// The vectors of a request, in the order of its texts.
    Vectors(EmbeddingLane, Vec<Vec<f32>>),
    /// The process cannot run the model, now or later.
    Failed(String),
}

impl EmbedReply {
    /// Encodes the message; texts are truncated to what a frame may hold.
    pub(super) fn encode(&self) -> Vec<u8> {
        let truncate =
            |text: &str| text.as_bytes()[..text.floor_char_boundary(ANSWER_MAX)].to_vec();
        let (kind, lane, body): (u8, u8, Vec<u8>) = match self {
            Self::Ready(unapplied) => (READY, 0, truncate(unapplied)),
            Self::Failed(why) => (FAILED, 0, truncate(why)),
            Self::Vectors(lane, vectors) => {
                let numbers = vectors.iter().flatten();
                let body = numbers.flat_map(|number| number.to_le_bytes()).collect();
                (VECTORS, *lane as u8, body)
            }
        };
        let mut out = vec![kind, lane];
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        out.extend_from_slice(&body);
        out
    }

    /// The next message; `None` at the end.
    ///
    /// # Errors
    /// Read errors, malformed bytes, and frames that are too long.
    pub(super) fn read_from(reader: &mut impl Read) -> io::Result<Option<Self>> {
        let Some([kind, lane]) = read_head(reader)? else {
            return Ok(None);
        };
        let length = check_count(read_length(reader)?, ANSWER_MAX)?;
        let body = read_bytes(reader, length)?;
        match (kind, EmbeddingLane::from_byte(lane)) {
            (READY, _) => Ok(Some(Self::Ready(parse_text(&body)))),
            (FAILED, _) => Ok(Some(Self::Failed(parse_text(&body)))),
            (VECTORS, Some(lane)) if length.is_multiple_of(VECTOR) => {
                let vectors = body.chunks_exact(VECTOR).map(parse_vector);
                Ok(Some(Self::Vectors(lane, vectors.collect())))
            }
            _ => Err(malformed_error()),
        }
    }
}

fn parse_text(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.chars().filter(|c| !c.is_control()).collect()
}

fn parse_vector(vector: &[u8]) -> Vec<f32> {
    let (numbers, _) = vector.as_chunks();
    numbers
        .iter()
        .map(|number| f32::from_le_bytes(*number))
        .collect()
}

/// The first two bytes of a frame; `None` at the end.
fn read_head(reader: &mut impl Read) -> io::Result<Option<[u8; 2]>> {
    let mut head = [0; 2];
    match reader.read_exact(&mut head[..1]) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        first => first?,
    }
    reader.read_exact(&mut head[1..])?;
    Ok(Some(head))
}

fn read_length(reader: &mut impl Read) -> io::Result<usize> {
    let mut length = [0; 4];
    reader.read_exact(&mut length)?;
    Ok(u32::from_le_bytes(length) as usize)
}

fn read_bytes(reader: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn check_count(count: usize, max: usize) -> io::Result<usize> {
    if count <= max {
        Ok(count)
    } else {
        Err(io::Error::new(
            ErrorKind::InvalidData,
            format!("{count} where at most {max} are allowed"),
        ))
    }
}

fn malformed_error() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "malformed frame")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip() {
        let long = "ä".repeat(BYTES_MAX);
        let sent = encode_request(EmbeddingLane::Tools, &["", "one", &long]);
        let mut reader = sent.as_slice();
        let read = EmbedRequest::read_from(&mut reader).unwrap().unwrap();
        assert_eq!(read.lane, EmbeddingLane::Tools);
        assert_eq!(read.texts[..2], ["", "one"]);
        assert_eq!(
            read.texts[2].len(),
            BYTES_MAX,
            "truncated to what the model reads"
        );
        assert_eq!(EmbedRequest::read_from(&mut reader).unwrap(), None);
        for reply in [
            EmbedReply::Ready("no sandbox".into()),
            EmbedReply::Failed(String::new()),
            EmbedReply::Vectors(
                EmbeddingLane::Requests,
                vec![vec![0.5; DIMENSION]; TEXTS_MAX],
            ),
        ] {
            let sent = reply.encode();
            assert_eq!(
                EmbedReply::read_from(&mut sent.as_slice()).unwrap(),
                Some(reply)
            );
            for length in 1..sent.len().min(64) {
                assert!(
                    EmbedReply::read_from(&mut &sent[..length]).is_err(),
                    "truncated to {length}"
                );
            }
        }
    }

    #[test]
    fn malformed_bytes_are_an_error() {
        let good = EmbedReply::Vectors(EmbeddingLane::Tools, vec![vec![0.5; DIMENSION]]).encode();
        for (index, wrong) in [(0, 3), (0, 255), (1, 2), (2, 1)] {
            let mut bytes = good.clone();
            bytes[index] = wrong;
            assert!(
                EmbedReply::read_from(&mut bytes.as_slice()).is_err(),
                "byte {index}: {wrong}"
            );
        }
        for bytes in [&[2, 0][..], &[0, 17], &[1, 1, 1, 0, 0, 0, 0xff]] {
            assert!(EmbedRequest::read_from(&mut &*bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_rejected_before_it_is_read() {
        let mut head = vec![VECTORS, 0];
        head.extend_from_slice(&u32::MAX.to_le_bytes());
        let refused = EmbedReply::read_from(&mut head.as_slice()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidData);
    }
}
