//! Messages of the gRPC binding, written by hand from the document's field numbers (MCP-lite, 5.2), so that the load
//! costs little and shares nothing with the kernel.

use bytes::Bytes;
use mgp_tests::load::H2Post;
use serde_json::Value;

/// A call of a tool by this method of the service.
pub(super) fn post(method: &str, name: &str, arguments: &Value) -> H2Post {
    let request = [field(1, name.as_bytes()), field(2, &message_of(arguments))].concat();
    let length = u32::try_from(request.len()).expect("a small message");
    let framed = [&[0][..], &length.to_be_bytes(), &request].concat();
    H2Post {
        path: format!("/mcplite.MCPLite/{method}"),
        content: "application/grpc",
        accept: "application/grpc",
        headers: vec![("te", "trailers".to_owned())],
        body: Bytes::from(framed),
    }
}

/// How many messages a body has.
pub(super) fn count(mut body: &[u8]) -> usize {
    let mut messages = 0;
    while let Some((head, rest)) = body.split_at_checked(5) {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let Some(rest) = rest.get(length..) else {
            break;
        };
        body = rest;
        messages += 1;
    }
    messages
}

/// A `Struct` of an object, or a `ListValue` of a list.
fn message_of(value: &Value) -> Vec<u8> {
    match value {
        Value::Object(members) => {
            let entry = |(name, value): (&String, &Value)| {
                field(
                    1,
                    &[field(1, name.as_bytes()), field(2, &value_of(value))].concat(),
                )
            };
            members.iter().flat_map(entry).collect()
        }
        Value::Array(all) => all
            .iter()
            .flat_map(|one| field(1, &value_of(one)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// A `Value`.
fn value_of(value: &Value) -> Vec<u8> {
    match value {
        Value::Null => vec![0x08, 0],
        Value::Number(number) => {
            let number = number.as_f64().expect("a double").to_le_bytes();
            [&[0x11][..], &number].concat()
        }
        Value::String(text) => field(3, text.as_bytes()),
        Value::Bool(yes) => vec![0x20, u8::from(*yes)],
        Value::Object(_) => field(5, &message_of(value)),
        Value::Array(_) => field(6, &message_of(value)),
    }
}

/// A field with a length.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![(number << 3) | 2];
    let mut left = bytes.len();
    while left >= 0x80 {
        out.push(0x80 | (left & 0x7f) as u8);
        left >>= 7;
    }
    out.push(left as u8);
    out.extend_from_slice(bytes);
    out
}
