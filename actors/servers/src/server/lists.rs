//! Fetches a server's lists page by page (MCP-030). A list that fails does not affect the others.

mod fetching;
pub(super) mod missing;
mod offers;
pub(super) mod pace;
mod restoration;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mgp_engine::policy::pins::PinRules;
use mgp_engine::tools::catalog::freshness::Freshness;
use mgp_engine::tools::catalog::{ListKind, ServerOffer};
use mgp_json::member;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::jsonrpc::METHOD_NOT_FOUND;
use mgp_protocol::mcp::ServerCapabilities;
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use crate::link::{Link, List, Wire, error_code};
use mgp_callers::Flag;
use mgp_policy::PinsHandle;
use mgp_runtime::task;

/// Pages fetched of one list, so that an endless list ends.
const MAX_PAGES: usize = 1_000;
/// How long the other lists are waited for after the first one. Slower lists are fetched again
/// later.
const SLOW_LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// Definitions read of one list; the engine keeps no more.
const MAX_ITEMS: usize = 10_000;

/// Freshly fetched lists, parsed and compiled.
#[derive(Debug)]
pub struct FetchedLists {
    offer: ServerOffer,
    kinds: Vec<ListKind>,
    /// What was odd about them.
    pub(crate) remarks: Vec<String>,
    /// The lists that were fetched, each with the reason if it is incomplete.
    pub(super) fetched: Vec<(ListKind, Option<String>)>,
}

impl FetchedLists {
    /// No lists fetched.
    pub(super) fn unchanged(before: ServerOffer) -> Self {
        Self {
            offer: before,
            kinds: Vec::new(),
            remarks: Vec::new(),
            fetched: Vec::new(),
        }
    }

    /// The lists that were fetched.
    pub(super) fn kinds(&self) -> &[ListKind] {
        &self.kinds
    }

    /// The old offer with these lists replaced.
    #[must_use]
    pub(crate) fn apply_to(&self, offer: ServerOffer) -> ServerOffer {
        let kinds = self.kinds.iter();
        kinds.fold(offer, |offer, kind| {
            offer.with_list_from(*kind, &self.offer)
        })
    }
}

/// Compares tools with their pins before agents see them.
#[derive(Debug, Clone)]
pub(super) struct PinCheck {
    pub(super) pins: PinsHandle,
    pub(super) rules: PinRules,
}

/// One list, all its pages together.
#[derive(Debug)]
struct FetchedList {
    kind: ListKind,
    definitions: Vec<Arc<str>>,
    /// How long it may be cached, where the server's era says so.
    freshness: Option<Freshness>,
    remarks: Vec<String>,
    /// Why it is incomplete.
    gap: Option<ListGap>,
}

/// Why a list is incomplete.
#[derive(Debug)]
struct ListGap {
    why: String,
    /// The server does not have this list: what it offered in an earlier life is dropped.
    is_unsupported: bool,
}

/// Freshly fetched lists: definitions as the server sent them.
#[derive(Debug)]
pub(super) struct RawLists(Vec<FetchedList>);

impl RawLists {
    /// Fetches all lists the server declares; definitions equal to those in `before` are not compiled again.
    /// A list that fails is left out; a slow one is not waited for long once the first is there.
    ///
    /// # Errors
    /// Why none of the lists it declares could be fetched, in words.
    pub(super) async fn fetch(
        link: &Arc<Link>,
        before: ServerOffer,
        watch: &PinCheck,
    ) -> Result<FetchedLists, String> {
        let can = link.peer().map(|p| p.capabilities).unwrap_or_default();
        let lists = [List::Tools, List::Prompts, List::Resources];
        let offered = lists.into_iter().filter(|list| is_declared(can, *list));
        let wanted: Vec<_> = offered.flat_map(kinds).collect();
        if wanted.is_empty() {
            let tools = FetchedList::fetch_undeclared_tools(link).await;
            return Self(tools.into_iter().collect())
                .compile(before, watch)
                .await;
        }
        let first = Flag::default();
        let asked = wanted.iter().enumerate().map(|(at, (kind, method))| {
            let first = &first;
            async move {
                let whole = FetchedList::fetch(link, *kind, method);
                if at == 0 {
                    let whole = whole.await;
                    first.raise();
                    return whole;
                }
                tokio::select! {
                    whole = whole => whole,
                    () = async { first.wait_until_raised().await; tokio::time::sleep(SLOW_LIST_TIMEOUT).await } => {
                        FetchedList::failed(*kind, ListGap::new(method, "no answer yet"))
                    }
                }
            }
        });
        let mut all = join_all(asked).await;
        let mut main = all.iter().filter(|whole| whole.kind != ListKind::Templates);
        if let Some(gap) = main.clone().find_map(|whole| whole.gap.as_ref())
            && main.all(|whole| whole.gap.is_some() && whole.definitions.is_empty())
        {
            return Err(gap.why.clone());
        }
        let none = lists
            .into_iter()
            .filter(|list| !self::is_declared(can, *list));
        all.extend(
            none.flat_map(kinds)
                .map(|(kind, _)| FetchedList::empty(*kind)),
        );
        Self(all).compile(before, watch).await
    }

    /// Fetches one list again; when that fails the list stays as it was.
    pub(super) async fn fetch_one(
        link: &Arc<Link>,
        list: List,
        before: ServerOffer,
        watch: &PinCheck,
    ) -> FetchedLists {
        let can = link.peer().map(|p| p.capabilities).unwrap_or_default();
        // Found at its start, though it had not declared them.
        let listed = list == List::Tools && !before.tools().is_empty();
        let fetched = kinds(list).iter().map(|(kind, method)| async move {
            if listed || is_declared(can, list) {
                FetchedList::fetch(link, *kind, method).await
            } else {
                FetchedList::empty(*kind)
            }
        });
        let lists = Self(join_all(fetched).await);
        let read = lists.compile(before.clone(), watch).await;
        read.unwrap_or_else(|why| FetchedLists {
            offer: before,
            kinds: Vec::new(),
            remarks: vec![why],
            fetched: Vec::new(),
        })
    }

    /// Blocks: compiling schemas takes time and pins are on disk, so this does not run on the threads that
    /// carry calls.
    async fn compile(self, before: ServerOffer, watch: &PinCheck) -> Result<FetchedLists, String> {
        let (mut asked, mut notes) = (Vec::new(), Vec::new());
        let mut lists = Vec::new();
        for mut whole in self.0 {
            notes.append(&mut whole.remarks);
            let why = whole.gap.as_ref().map(|gap| gap.why.clone());
            // Many servers have resources and no templates.
            let usual = whole.kind == ListKind::Templates && whole.is_unknown();
            asked.push((whole.kind, why.filter(|_| !usual)));
            lists.extend(whole.should_replace(&before).then_some(whole));
        }
        let kinds: Vec<ListKind> = lists.iter().map(|list| list.kind).collect();
        let (watch, tools) = (watch.clone(), kinds.contains(&ListKind::Tools));
        let reading = task::run_blocking("lists.read", move || {
            let offer = lists.iter().fold(before, |offer, list| {
                let offer = offer.with_list(list.kind, &list.definitions);
                match list.freshness {
                    Some(freshness) => offer.with_freshness(list.kind, freshness),
                    None => offer,
                }
            });
            if tools {
                watch
                    .pins
                    .compare(offer.server(), offer.tools(), &watch.rules)?;
            }
            Ok(offer)
        });
        let offer: Result<ServerOffer, String> = reading
            .await
            .unwrap_or_else(|broken| Err(broken.to_string()));
        Ok(FetchedLists {
            offer: offer?,
            kinds,
            remarks: notes,
            fetched: asked,
        })
    }
}

impl ListGap {
    fn new(method: &str, why: impl std::fmt::Display) -> Self {
        Self {
            why: format!("{method}: {why}"),
            is_unsupported: false,
        }
    }

    /// A server's own error is shown by its message, not as JSON.
    fn from_refusal(method: &str, refusal: &Refusal) -> Self {
        let Some(error) = refusal.relayed_error() else {
            return Self::new(method, refusal);
        };
        let code = error_code(error);
        let message = member(error, "message");
        let message: Option<String> = message.and_then(|text| serde_json::from_str(text).ok());
        let words = message.unwrap_or_else(|| "the server refuses".into());
        Self {
            why: match code {
                Some(code) => format!("{method}: {words} ({code})"),
                None => format!("{method}: {words}"),
            },
            is_unsupported: code == Some(METHOD_NOT_FOUND),
        }
    }
}

impl FetchedList {
    fn empty(kind: ListKind) -> Self {
        Self {
            kind,
            definitions: Vec::new(),
            freshness: None,
            remarks: Vec::new(),
            gap: None,
        }
    }

    fn failed(kind: ListKind, gap: ListGap) -> Self {
        Self {
            gap: Some(gap),
            ..Self::empty(kind)
        }
    }

    fn is_unknown(&self) -> bool {
        self.gap.as_ref().is_some_and(|gap| gap.is_unsupported)
    }

    /// Whether it replaces the list before it: if it is complete, if the server no longer has such a list, or
    /// if the one before is empty.
    fn should_replace(&self, before: &ServerOffer) -> bool {
        self.gap.is_none() || self.is_unknown() || before.count(self.kind) == 0
    }

    /// Fetches all pages, up to the first that fails.
    async fn fetch(link: &Arc<Link>, kind: ListKind, method: &str) -> Self {
        let mut whole = Self::empty(kind);
        // What other nodes share of their tools is told beforehand, with what searching them needs.
        if let (ListKind::Tools, Wire::Node(node)) = (kind, link.wire()) {
            whole.definitions = node.tools();
            return whole;
        }
        whole.gap = whole.fetch_pages(link, method).await.err();
        whole
    }

    /// Some servers declare nothing and have tools all the same. Whatever goes wrong when they are asked for, there
    /// are none.
    async fn fetch_undeclared_tools(link: &Arc<Link>) -> Option<Self> {
        if matches!(link.wire(), Wire::Node(_) | Wire::Lite(_)) {
            return None;
        }
        let asked = Self::fetch(link, ListKind::Tools, "tools/list");
        let mut whole = tokio::time::timeout(SLOW_LIST_TIMEOUT, asked).await.ok()?;
        if whole.gap.is_some() || whole.definitions.is_empty() {
            return None;
        }
        let note = "the server declares no tools in `capabilities`, and lists some";
        whole.remarks.push(note.into());
        Some(whole)
    }

    async fn fetch_pages(&mut self, link: &Arc<Link>, method: &str) -> Result<(), ListGap> {
        let mut cursor = None::<String>;
        for _ in 0..MAX_PAGES {
            let params = cursor
                .as_ref()
                .map(|cursor| format!(r#"{{"cursor":{cursor}}}"#));
            let page = link.request(method, params.as_deref()).await;
            let page = page.map_err(|refusal| ListGap::from_refusal(method, &refusal))?;
            let next = self.add_page(page).map_err(|e| ListGap::new(method, e))?;
            if link.peer_for(ProtocolFamily::Stateless).is_none() {
                self.freshness = None;
            }
            if next.is_none() {
                return Ok(());
            }
            if self.definitions.len() >= MAX_ITEMS {
                self.remarks.push(format!(
                    "{method}: more than {MAX_ITEMS} entries; the rest is not shown"
                ));
                return Ok(());
            }
            if next == cursor {
                self.remarks.push(format!(
                    "{method}: the same nextCursor twice; the list ends there"
                ));
                return Ok(());
            }
            cursor = next;
        }
        self.remarks.push(format!(
            "{method}: more than {MAX_PAGES} pages; the rest is not shown"
        ));
        Ok(())
    }

    /// Reads one page; returns the next cursor as JSON text. The whole list is as fresh as its least fresh
    /// page.
    fn add_page(&mut self, page: bytes::Bytes) -> Result<Option<String>, String> {
        let page = std::str::from_utf8(&page).map_err(|_| "the answer is not UTF-8".to_owned())?;
        let key = self.kind.result_member();
        let list = member(page, key).ok_or_else(|| format!("no `{key}` in the answer"))?;
        let list: Vec<&RawValue> = match list {
            "null" => {
                self.remarks
                    .push(format!("`{key}` is null, read as an empty list"));
                Vec::new()
            }
            list => serde_json::from_str(list).map_err(|e| format!("`{key}` is no list: {e}"))?,
        };
        let items = list.iter().map(|item| Arc::from(item.get()));
        self.definitions.extend(items);
        let fresh = Freshness::parse(page);
        self.freshness = Some(self.freshness.map_or(fresh, |before| before.combine(fresh)));
        // As its server wrote it: some count their pages with numbers.
        let next = member(page, "nextCursor").filter(|cursor| *cursor != "null");
        Ok(next.map(str::to_owned))
    }
}

fn kinds(list: List) -> &'static [(ListKind, &'static str)] {
    match list {
        List::Tools => &[(ListKind::Tools, "tools/list")],
        List::Prompts => &[(ListKind::Prompts, "prompts/list")],
        List::Resources => &[
            (ListKind::Resources, "resources/list"),
            (ListKind::Templates, "resources/templates/list"),
        ],
    }
}

fn is_declared(can: ServerCapabilities, list: List) -> bool {
    match list {
        List::Tools => can.tools,
        List::Prompts => can.prompts,
        List::Resources => can.resources,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use mgp_engine::tools::catalog::freshness::CacheScope;

    use super::*;

    /// SEP-2549: a list may be cached as long as the page with the shortest time.
    #[test]
    fn a_list_is_as_fresh_as_its_least_fresh_page() {
        let mut whole = FetchedList::empty(ListKind::Tools);
        let pages = [
            r#"{"tools":[{"name":"a"}],"ttlMs":9000,"cacheScope":"public","nextCursor":""}"#,
            r#"{"tools":[{"name":"b"}],"ttlMs":4000,"cacheScope":"private"}"#,
        ];
        let next = pages.map(|page| whole.add_page(Bytes::from_static(page.as_bytes())).unwrap());
        assert_eq!(next, [Some("\"\"".to_owned()), None]);
        let definitions = [r#"{"name":"a"}"#, r#"{"name":"b"}"#].map(Arc::from);
        assert_eq!(whole.definitions, definitions);
        let (ttl_ms, scope) = (4000, CacheScope::Private);
        assert_eq!(whole.freshness, Some(Freshness { ttl_ms, scope }));
    }
}
