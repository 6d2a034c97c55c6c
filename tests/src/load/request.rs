//! A request that is serialised once; only its id is written anew for each call.

use super::H2Post;

/// The digits of an id, always nine, so that a request never changes its length.
const DIGITS: usize = 9;

/// The first id given out.
const FIRST: u64 = 100_000_000;

/// How a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Talk {
    /// In a session that `initialize` opened.
    Session,
    /// Without one: each request of 2026-07-28 says all there is to know of its client.
    Alone,
}

impl Talk {
    /// The `_meta` of a request, as a member to stand before others.
    const fn meta(self) -> &'static str {
        match self {
            Self::Session => "",
            Self::Alone => {
                r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"load","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#
            }
        }
    }
}

/// A JSON-RPC request as bytes, perhaps with an HTTP head before it.
#[derive(Debug, Clone)]
pub struct Request {
    bytes: Vec<u8>,
    id_at: usize,
    talk: Talk,
    /// The headers that repeat what the body says.
    mirrored: String,
    /// What the client takes as an answer.
    accept: &'static str,
}

impl Request {
    /// A request for a list.
    #[must_use]
    pub fn list(talk: Talk, method: &str) -> Self {
        Self::new(talk, method, None, "")
    }

    /// A call of the tool `echo` with a text of so many bytes.
    #[must_use]
    pub fn echo(talk: Talk, length: usize) -> Self {
        Self::call(talk, "echo", length)
    }

    /// The same of a tool of another name.
    #[must_use]
    pub fn call(talk: Talk, name: &str, length: usize) -> Self {
        let text: String = ('a'..='z').cycle().take(length).collect();
        Self::with_arguments(talk, name, &format!(r#"{{"text":"{text}"}}"#))
    }

    /// A call of a tool with these arguments, which are JSON text.
    #[must_use]
    pub fn with_arguments(talk: Talk, name: &str, arguments: &str) -> Self {
        let params = format!(r#""name":"{name}","arguments":{arguments}"#);
        Self::new(talk, "tools/call", Some(name), &params)
    }

    /// The same of a client of MCP-lite, which says nothing of itself.
    #[must_use]
    pub fn lite(name: &str, arguments: &str) -> Self {
        Self {
            talk: Talk::Alone,
            accept: "application/json",
            ..Self::with_arguments(Talk::Session, name, arguments)
        }
    }

    /// A request without its transport; `members` are those of its params beside `_meta`.
    fn new(talk: Talk, method: &str, name: Option<&str>, members: &str) -> Self {
        let meta = talk.meta();
        let comma = if meta.is_empty() || members.is_empty() {
            ""
        } else {
            ","
        };
        let head = r#"{"jsonrpc":"2.0","id":"#;
        let text =
            format!(r#"{head}{FIRST},"method":"{method}","params":{{{meta}{comma}{members}}}}}"#);
        let name = name.map_or_else(String::new, |name| format!("Mcp-Name: {name}\r\n"));
        Self {
            id_at: head.len(),
            bytes: text.into_bytes(),
            talk,
            mirrored: match talk {
                Talk::Session => String::new(),
                Talk::Alone => {
                    format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{name}")
                }
            },
            accept: "application/json, text/event-stream",
        }
    }

    /// How the client of it speaks.
    #[must_use]
    pub fn talk(&self) -> Talk {
        self.talk
    }

    /// The same request as an HTTP POST.
    #[must_use]
    pub fn posted(&self, host: &str, path: &str, headers: &str) -> Self {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Accept: {}\r\n{headers}{}Content-Length: {}\r\n\r\n",
            self.accept,
            self.mirrored,
            self.bytes.len()
        );
        Self {
            id_at: head.len() + self.id_at,
            bytes: [head.as_bytes(), &self.bytes].concat(),
            talk: self.talk,
            mirrored: String::new(),
            accept: self.accept,
        }
    }

    /// The same request as a line.
    #[must_use]
    pub fn line(&self) -> Self {
        Self {
            id_at: self.id_at,
            bytes: [&self.bytes[..], b"\n"].concat(),
            talk: self.talk,
            mirrored: String::new(),
            accept: self.accept,
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

    /// The same for HTTP/2, where its id stays the same.
    #[must_use]
    pub fn over_h2(&self, path: &str) -> H2Post {
        let mirrored = self
            .mirrored
            .lines()
            .filter_map(|line| line.split_once(": "));
        let known = ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"];
        let header = |(name, value): (&str, &str)| {
            let name = known.iter().find(|known| **known == name)?;
            Some((*name, value.to_owned()))
        };
        H2Post {
            path: path.to_owned(),
            content: "application/json",
            accept: self.accept,
            headers: mirrored.filter_map(header).collect(),
            body: self.bytes.clone().into(),
        }
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
    fn a_request_that_stands_alone_says_who_asks_and_mirrors_itself() {
        let mut call = Request::echo(Talk::Alone, 3).posted("h", "/mcp", "");
        let sent = String::from_utf8(call.with_id(1).to_vec()).unwrap();
        assert!(sent.contains("Mcp-Method: tools/call\r\nMcp-Name: echo\r\nContent-Length"));
        let (_, body) = sent.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let version = &body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        assert_eq!(version, "2026-07-28");
        assert_eq!(body["params"]["arguments"]["text"], "abc");
        let mut list = Request::list(Talk::Session, "tools/list").posted("h", "/mcp", "");
        let sent = String::from_utf8(list.with_id(1).to_vec()).unwrap();
        assert!(sent.ends_with(r#""params":{}}"#) && !sent.contains("Mcp-Method"));
    }

    #[test]
    fn an_id_comes_back_from_either_end() {
        let plain = Request::echo(Talk::Session, 32);
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
