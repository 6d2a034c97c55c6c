//! The OpenAPI document of the tools that a caller may call: rendered on request, and cached for callers with the
//! same tools.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use mgp_protocol::lite::error::{LiteError, LiteErrorKind, LiteRefusal};
use mgp_protocol::lite::openapi::{DocumentOptions, render_document};
use mgp_protocol::lite::tool_list::{ToolPage, tool_name};
use mgp_protocol::lite::{REDEEM, REDEEM_TOOL};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::task;
use mgp_runtime::trace::Trace;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::{Lite, LiteCaller};

/// The most cached documents: callers with the same rights share one, and there are few kinds of callers.
const CACHED_MAX: usize = 16;

/// The most bytes of cached documents. At either limit the oldest one is evicted; it is rendered again on
/// request.
const CACHED_BYTES_MAX: usize = 32 << 20;

/// The version of a document.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The input of a document.
#[derive(Debug)]
pub(crate) struct ApiSource {
    pages: Vec<Bytes>,
    server: String,
    token: bool,
    tag: String,
}

impl ApiSource {
    fn new(pages: Vec<Bytes>, server: String, token: bool) -> Self {
        let mut hash = blake3::Hasher::new();
        let terms = format!("{VERSION} {token} {server}");
        for part in std::iter::once(terms.as_bytes()).chain(pages.iter().map(|page| &page[..])) {
            // With its length, so that no two lists of parts have the same hash input.
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let tag = format!("\"{}\"", &hash.finalize().to_hex()[..32]);
        Self {
            pages,
            server,
            token,
            tag,
        }
    }

    /// The entity tag of the document (RFC 9110, 8.8.3), available before it is rendered.
    #[must_use]
    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }

    fn render(&self) -> Bytes {
        let redeem = RawValue::from_string(REDEEM_TOOL.to_owned()).expect("it is JSON");
        let pages: Vec<_> = self
            .pages
            .iter()
            .map(|page| String::from_utf8_lossy(page))
            .collect();
        let pages: Vec<_> = pages.iter().map(|page| ToolPage::parse(page)).collect();
        let tools = pages.iter().flat_map(|page| page.tools.iter().copied());
        // The name is the kernel's own.
        let tools = tools.filter(|tool| tool_name(tool.get()).is_some_and(|name| name != REDEEM));
        let tools: Vec<&RawValue> = std::iter::once(&*redeem).chain(tools).collect();
        let terms = DocumentOptions {
            server: &self.server,
            requires_token: self.token,
            version: VERSION,
        };
        render_document(&tools, &terms).into()
    }
}

/// The last rendered documents, oldest first, by their tags.
#[derive(Debug, Default)]
pub(super) struct DocumentCache(Mutex<VecDeque<(String, Bytes)>>);

impl DocumentCache {
    fn get(&self, tag: &str) -> Option<Bytes> {
        let documents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = documents.iter().find(|(cached, _)| cached == tag);
        found.map(|(_, text)| text.clone())
    }

    fn insert(&self, tag: String, text: Bytes) {
        let mut documents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if documents.iter().any(|(cached, _)| *cached == tag) {
            return;
        }
        documents.push_back((tag, text));
        let bytes = |documents: &VecDeque<(String, Bytes)>| -> usize {
            documents.iter().map(|(_, text)| text.len()).sum()
        };
        while documents.len() > CACHED_MAX || bytes(&documents) > CACHED_BYTES_MAX {
            documents.pop_front();
        }
    }
}

impl Lite {
    /// Collects the input of the document of this agent in this view. `server` is the base URL; `token` is
    /// set if requests need one.
    ///
    /// # Errors
    /// The tools are not available.
    pub(crate) async fn api_source(
        &self,
        caller: &LiteCaller,
        (server, token): (String, bool),
    ) -> Result<ApiSource, LiteError> {
        let (outlet, _unread) = mpsc::channel(1);
        let opened = self.open_request(
            caller,
            ("tools/list", "{}"),
            outlet,
            (false, Trace::generate()),
        );
        let caller = opened
            .map_err(|refusal| to_lite_error(&refusal))?
            .caller()
            .clone();
        let pages = self.stateless.routes.all_tools(caller).await;
        let pages = pages.map_err(|refusal| to_lite_error(&refusal))?;
        Ok(ApiSource::new(pages, server, token))
    }

    /// Renders the document, or returns the cached one.
    ///
    /// # Errors
    /// Rendering failed, which is the kernel's fault.
    pub(crate) async fn api_text(&self, source: ApiSource) -> Result<Bytes, LiteError> {
        if let Some(document) = self.document_cache.get(&source.tag) {
            return Ok(document);
        }
        // Rendering thousands of tools takes long.
        let making = task::run_blocking("lite.openapi", move || (source.render(), source.tag));
        let rendered = making.await;
        let (text, tag) = rendered
            .map_err(|broken| LiteError::new(LiteErrorKind::Internal, broken.to_string()))?;
        self.document_cache.insert(tag, text.clone());
        Ok(text)
    }
}

fn to_lite_error(refusal: &Refusal) -> LiteError {
    match LiteRefusal::from_refusal(refusal) {
        LiteRefusal::Error(error) => error,
        LiteRefusal::Failure(_) => LiteError::new(LiteErrorKind::Internal, refusal.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(tools: &str, server: &str) -> ApiSource {
        let page = format!(r#"{{"tools":[{tools}]}}"#);
        ApiSource::new(vec![page.into()], server.into(), true)
    }

    #[test]
    fn tag_changes_with_the_input_of_the_document() {
        let one = source(r#"{"name":"a"}"#, "http://a/mcp-lite/v1");
        assert_eq!(
            one.tag(),
            source(r#"{"name":"a"}"#, "http://a/mcp-lite/v1").tag()
        );
        assert_ne!(
            one.tag(),
            source(r#"{"name":"b"}"#, "http://a/mcp-lite/v1").tag()
        );
        assert_ne!(
            one.tag(),
            source(r#"{"name":"a"}"#, "http://b/mcp-lite/v1").tag()
        );
        let open = ApiSource::new(one.pages.clone(), one.server.clone(), false);
        assert_ne!(one.tag(), open.tag());
    }

    /// LITE-006: `redeem` is in each document, and is the kernel's own.
    #[test]
    fn redeem_is_the_kernels_own() {
        let source = source(
            r#"{"name":"redeem","description":"forged"},{"name":"a"}"#,
            "u",
        );
        let text = String::from_utf8(source.render().to_vec()).unwrap();
        assert!(
            text.contains("/tools/redeem") && text.contains("/tools/a"),
            "{text}"
        );
        assert!(!text.contains("forged"), "{text}");
    }

    #[test]
    fn cache_evicts_the_oldest_documents() {
        let documents = DocumentCache::default();
        for n in 0..=CACHED_MAX {
            documents.insert(n.to_string(), Bytes::from_static(b"{}"));
        }
        assert!(documents.get("0").is_none() && documents.get("1").is_some());
        documents.insert("large".into(), vec![0; CACHED_BYTES_MAX].into());
        assert!(documents.get("1").is_none() && documents.get("large").is_some());
    }
}
