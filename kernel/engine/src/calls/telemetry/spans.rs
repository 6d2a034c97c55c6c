//! A span: one stretch of the time that a request took.

/// A span that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedSpan {
    /// The trace, as W3C Trace Context has it.
    pub trace: u128,
    /// Its id; never 0.
    pub id: u64,
    /// The id of its parent; 0 for none.
    pub parent: u64,
    /// `tracestate` of the caller, as sent.
    pub state: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its side of a request.
    pub kind: SpanKind,
    /// Nanoseconds since 1970.
    pub start_ns: u64,
    /// Nanoseconds since 1970.
    pub end_ns: u64,
    /// Names and values.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Why it failed, as one of few words; `None` where it did not.
    pub error: Option<&'static str>,
}

/// The ids of a span that others refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace, as W3C Trace Context has it.
    pub trace: u128,
    /// Its id.
    pub span: u64,
}

/// The side of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Within the kernel.
    Internal,
    /// The kernel answers a request.
    Server,
    /// The kernel sends a request.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    /// A text.
    Text(Box<str>),
    /// A number.
    Int(i64),
    /// A boolean.
    Bool(bool),
}

/// Longest text of an attribute, in characters: values chosen by others are truncated.
const TEXT_MAX: usize = 256;

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        match text.char_indices().nth(TEXT_MAX) {
            Some((at, _)) => Self::Text(text[..at].into()),
            None => Self::Text(text.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0066: a span takes about a kilobyte, however long the names of others are.
    #[test]
    fn foreign_names_are_truncated() {
        let long = "ü".repeat(10_000);
        assert_eq!(
            AttributeValue::from(&*long),
            AttributeValue::Text("ü".repeat(TEXT_MAX).into())
        );
        assert_eq!(AttributeValue::from("ü"), AttributeValue::Text("ü".into()));
    }
}
