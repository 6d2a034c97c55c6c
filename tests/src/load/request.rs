//! A request that is serialised once; only its id is written anew for each call.

/// The digits of an id, always nine, so that a request never changes its length.
const DIGITS: usize = 9;

/// The first id given out.
const FIRST: u64 = 100_000_000;

/// A JSON-RPC request as bytes, perhaps with an HTTP head before it.
#[derive(Debug, Clone)]
pub struct Request {
    bytes: Vec<u8>,
    id_at: usize,
}

impl Request {
    /// A request without its transport.
    #[must_use]
    pub fn new(method: &str, params: &str) -> Self {
        let head = r#"{"jsonrpc":"2.0","id":"#;
        let text = format!(r#"{head}{FIRST},"method":"{method}","params":{params}}}"#);
        Self {
            id_at: head.len(),
            bytes: text.into_bytes(),
        }
    }

    /// A call of the tool `echo` with a text of so many bytes.
    #[must_use]
    pub fn echo(tool: &str, length: usize) -> Self {
        let text: String = ('a'..='z').cycle().take(length).collect();
        let params = format!(r#"{{"name":"{tool}","arguments":{{"text":"{text}"}}}}"#);
        Self::new("tools/call", &params)
    }

    /// The same request as an HTTP POST.
    #[must_use]
    pub fn posted(&self, host: &str, path: &str, headers: &str) -> Self {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n",
            self.bytes.len()
        );
        Self {
            id_at: head.len() + self.id_at,
            bytes: [head.as_bytes(), &self.bytes].concat(),
        }
    }

    /// The same request as a line.
    #[must_use]
    pub fn line(&self) -> Self {
        Self {
            id_at: self.id_at,
            bytes: [&self.bytes[..], b"\n"].concat(),
        }
    }

    /// The bytes with the id of the call number `n`.
    pub fn with_id(&mut self, n: u64) -> &[u8] {
        let mut rest = FIRST + n % FIRST;
        for digit in self.bytes[self.id_at..][..DIGITS].iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
            rest /= 10;
        }
        &self.bytes
    }

    /// How many bytes it has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// The number that [`Request::with_id`] was given, out of the response; it stands near one end.
#[must_use]
pub fn number(response: &[u8]) -> Option<u64> {
    let (head, tail) = ends(response);
    let digits = after(head, b"\"id\":").or_else(|| after(tail, b"\"id\":"))?;
    let text = std::str::from_utf8(digits.get(..DIGITS)?).ok()?;
    text.parse::<u64>().ok()?.checked_sub(FIRST)
}

/// True when the response is a result. Only its two ends are looked at.
#[must_use]
pub fn is_result(response: &[u8]) -> bool {
    let (head, tail) = ends(response);
    let says = |part| after(part, b"\"result\":").is_some();
    says(head) || says(tail)
}

/// As much of both ends as an envelope takes.
fn ends(response: &[u8]) -> (&[u8], &[u8]) {
    const ENVELOPE: usize = 160;
    let head = &response[..response.len().min(ENVELOPE)];
    let tail = &response[response.len().saturating_sub(ENVELOPE)..];
    (head, tail)
}

fn after<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let at = text.windows(word.len()).position(|w| w == word)?;
    Some(&text[at + word.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_comes_back_from_either_end() {
        let plain = Request::echo("echo", 32);
        let mut request = plain.posted("h", "/mcp", "");
        let sent = String::from_utf8(request.with_id(42).to_vec()).unwrap();
        let length = format!("Content-Length: {}\r\n", plain.size());
        assert!(sent.contains(&length) && sent.contains(r#""id":100000042,"#));
        let long = "x".repeat(1000);
        let late = format!(r#"{{"result":{{"t":"{long}"}},"id":100000042}}"#);
        assert_eq!(number(late.as_bytes()), Some(42));
        assert!(is_result(late.as_bytes()));
        assert!(!is_result(
            br#"{"jsonrpc":"2.0","id":100000001,"error":{}}"#
        ));
    }
}
