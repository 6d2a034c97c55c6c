//! Queries the registry over HTTP.

use mgp_transports::http::is_safe_url;
use serde::de::DeserializeOwned;

use super::server_json::{RegistryEntry, RegistryPage, is_name};
use crate::cli::args::RegistryAddress;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::text_format::first_line;

/// Servers on a page, the registry's maximum.
const PAGE_SIZE: usize = 100;
/// Most pages that are searched.
const PAGES_MAX: usize = 5;

/// A registry with the API of the official one, version 0.1.
pub(super) struct RegistryClient<'c> {
    url: String,
    context: &'c CliContext,
}

impl<'c> RegistryClient<'c> {
    /// The named registry, or the configured one.
    pub(super) fn new(context: &'c CliContext, typed: &RegistryAddress) -> Result<Self, Failure> {
        let url = typed.registry.clone();
        let url = url.unwrap_or_else(|| context.registry.url.clone());
        let url = url.trim_end_matches('/').to_owned();
        if is_safe_url(&url) {
            Ok(Self { url, context })
        } else {
            Err(Failure::Usage(
                "--registry wants https://, or http:// and this machine: what comes from there is run"
                    .to_owned(),
            ))
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The newest versions that match all words, with the longest word in the name; and how many were skipped because
    /// of invalid names.
    pub(super) fn search(&self, words: &[String]) -> Result<(Vec<RegistryEntry>, usize), Failure> {
        let longest = words.iter().max_by_key(|word| word.len());
        let longest = encode_path_segment(longest.map_or("", String::as_str));
        let (mut found, mut unfit, mut cursor) = (Vec::new(), 0, None::<String>);
        for _ in 0..PAGES_MAX {
            let mut path =
                format!("/v0.1/servers?search={longest}&version=latest&limit={PAGE_SIZE}");
            if let Some(cursor) = &cursor {
                path += &format!("&cursor={}", encode_path_segment(cursor));
            }
            let page: RegistryPage = self.get(&path)?.unwrap_or(RegistryPage {
                servers: Vec::new(),
                metadata: Default::default(),
            });
            for answer in page.servers {
                match is_name(&answer.server.name) {
                    true if answer.status() == "deleted" => {}
                    true if answer.server.matches_all(words) => found.push(answer),
                    true => {}
                    false => unfit += 1,
                }
            }
            cursor = page.metadata.next_cursor.filter(|next| !next.is_empty());
            if cursor.is_none() {
                break;
            }
        }
        Ok((found, unfit))
    }

    /// A server by its name, in this version or the newest.
    pub(super) fn get_server(
        &self,
        name: &str,
        version: Option<&str>,
    ) -> Result<Option<RegistryEntry>, Failure> {
        if !is_name(name) {
            return Err(Failure::Usage(format!(
                "{} is no name of a registry; those are like io.github.acme/weather",
                first_line(name, 200)
            )));
        }
        let version = encode_path_segment(version.unwrap_or("latest"));
        let path = format!(
            "/v0.1/servers/{}/versions/{version}",
            encode_path_segment(name)
        );
        let answer: Option<RegistryEntry> = self.get(&path)?;
        match answer {
            // A different server than requested.
            Some(answer) if answer.server.name != name => Err(Failure::Other(format!(
                "{} was asked for {name} and answered {}; nothing was added",
                self.url,
                first_line(&answer.server.name, 200)
            ))),
            Some(answer) if answer.status() == "deleted" => Err(Failure::Other(format!(
                "{name} was taken out of {}",
                self.url
            ))),
            answer => Ok(answer),
        }
    }

    /// `None` if it does not exist.
    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Failure> {
        self.context
            .download(&self.url, &format!("{}{path}", self.url))
    }
}

/// Encodes a text as a segment of a URL.
fn encode_path_segment(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_in_the_address() {
        assert_eq!(encode_path_segment("io.github.a/b"), "io.github.a%2Fb");
        assert_eq!(encode_path_segment("a b?&#%é"), "a%20b%3F%26%23%25%C3%A9");
    }
}
