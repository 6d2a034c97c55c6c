//! A span: one stretch of the time that a request took.

/// A span that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSpan {
    /// The trace, as W3C Trace Context has it.
    pub trace: u128,
    /// Its own number; never 0.
    pub id: u64,
    /// The span that it is part of; 0 for none.
    pub parent: u64,
    /// `tracestate` of the caller, as it was sent.
    pub state: Box<str>,
    /// What it is.
    pub name: Box<str>,
    /// On which side of a request it is.
    pub kind: SpanKind,
    /// Nanoseconds since 1970.
    pub start_ns: u64,
    /// Nanoseconds since 1970.
    pub end_ns: u64,
    /// Names and values.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Why it failed, as one of few words; `None` where it did not.
    pub error: Option<&'static str>,
}

/// The side of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Within the kernel.
    Internal,
    /// The kernel answers.
    Server,
    /// The kernel asks.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanValue {
    /// A text.
    Text(Box<str>),
    /// A number.
    Whole(i64),
    /// Yes or no.
    Flag(bool),
}

impl From<&str> for SpanValue {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}
