//! Fetches a server's lists page by page (MCP-030). A list that fails does not affect the others.

mod fetching;
pub(super) mod missing;
mod offering;
pub(super) mod pace;
mod restored;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mgp_engine::policy::pins::PinRules;
use mgp_engine::tools::catalog::freshness::Freshness;
use mgp_engine::tools::catalog::{ListKind, ServerOffer};
use mgp_protocol::dialect::Era;
use mgp_protocol::jsonrpc::METHOD_NOT_FOUND;
use mgp_protocol::mcp::ServerCapabilities;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::member;
use serde_json::value::RawValue;

use crate::link::{Link, List, Wire, code};
use mgp_callers::exchange::Flag;
use mgp_policy::pins::PinsHandle;
use mgp_runtime::task;

/// Pages fetched of one list, so that an endless list ends.
const MAX_PAGES: usize = 1_000;
/// How long the other lists are waited for after the first one. Slower lists are fetched again
/// later.
const SLOWER: Duration = Duration::from_secs(2);
/// Definitions read of one list; the engine keeps no more.
const MAX_ITEMS: usize = 10_000;

/// Freshly fetched lists, parsed and compiled.
#[derive(Debug)]
pub struct Fresh {
    offer: ServerOffer,
    kinds: Vec<ListKind>,
    /// What was odd about them.
    pub notes: Vec<String>,
    /// The lists that were fetched, each with the reason if it is incomplete.
    pub(super) asked: Vec<(ListKind, Option<String>)>,
}

impl Fresh {
    /// No lists fetched.
    pub(super) fn none(before: ServerOffer) -> Self {
        Self {
            offer: before,
            kinds: Vec::new(),
            notes: Vec::new(),
            asked: Vec::new(),
        }
    }

    /// The lists that were fetched.
    pub(super) fn kinds(&self) -> &[ListKind] {
        &self.kinds
    }

    /// The old offer with these lists replaced.
    #[must_use]
    pub fn over(&self, offer: ServerOffer) -> ServerOffer {
        let kinds = self.kinds.iter();
        kinds.fold(offer, |offer, kind| offer.taking(*kind, &self.offer))
    }
}

/// Compares tools with their pins before agents see them.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    pub(super) pins: PinsHandle,
    pub(super) rules: PinRules,
}

/// One list, all its pages together.
#[derive(Debug)]
struct Whole {
    kind: ListKind,
    definitions: Vec<Arc<str>>,
    /// How long it may be cached, where the server's era says so.
    freshness: Option<Freshness>,
    notes: Vec<String>,
    /// Why it is incomplete.
    gap: Option<ListGap>,
}

/// Why a list is incomplete.
#[derive(Debug)]
struct ListGap {
    why: String,
    /// The server does not have this list: what it offered in an earlier life is dropped.
    unknown: bool,
}

/// Freshly fetched lists: definitions as the server sent them.
#[derive(Debug)]
pub(super) struct Lists(Vec<Whole>);

impl Lists {
    /// Fetches all lists the server declares; definitions equal to those in `before` are not compiled again.
    /// A list that fails is left out; a slow one is not waited for long once the first is there.
    ///
    /// # Errors
    /// Why none of the lists it declares could be fetched, in words.
    pub(super) async fn fetch(
        link: &Arc<Link>,
        before: ServerOffer,
        watch: &Watch,
    ) -> Result<Fresh, String> {
        let can = link.peer().map(|p| p.capabilities).unwrap_or_default();
        let lists = [List::Tools, List::Prompts, List::Resources];
        let offered = lists.into_iter().filter(|list| offered(can, *list));
        let wanted: Vec<_> = offered.flat_map(kinds).collect();
        if wanted.is_empty() {
            let tools = Whole::fetch_undeclared_tools(link).await;
            return Self(tools.into_iter().collect()).read(before, watch).await;
        }
        let first = Flag::default();
        let asked = wanted.iter().enumerate().map(|(at, (kind, method))| {
            let first = &first;
            async move {
                let whole = Whole::fetch(link, *kind, method);
                if at == 0 {
                    let whole = whole.await;
                    first.raise();
                    return whole;
                }
                tokio::select! {
                    whole = whole => whole,
                    () = async { first.raised().await; tokio::time::sleep(SLOWER).await } => {
                        Whole::without(*kind, ListGap::of(method, "no answer yet"))
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
        let none = lists.into_iter().filter(|list| !self::offered(can, *list));
        all.extend(none.flat_map(kinds).map(|(kind, _)| Whole::none(*kind)));
        Self(all).read(before, watch).await
    }

    /// Fetches one list again; when that fails the list stays as it was.
    pub(super) async fn fetch_one(
        link: &Arc<Link>,
        list: List,
        before: ServerOffer,
        watch: &Watch,
    ) -> Fresh {
        let can = link.peer().map(|p| p.capabilities).unwrap_or_default();
        // Found at its start, though it had not declared them.
        let listed = list == List::Tools && !before.tools().is_empty();
        let fetched = kinds(list).iter().map(|(kind, method)| async move {
            match listed || offered(can, list) {
                true => Whole::fetch(link, *kind, method).await,
                false => Whole::none(*kind),
            }
        });
        let lists = Self(join_all(fetched).await);
        let read = lists.read(before.clone(), watch).await;
        read.unwrap_or_else(|why| Fresh {
            offer: before,
            kinds: Vec::new(),
            notes: vec![why],
            asked: Vec::new(),
        })
    }

    /// Blocks: compiling schemas takes time and pins are on disk, so this does not run on the threads that
    /// carry calls.
    async fn read(self, before: ServerOffer, watch: &Watch) -> Result<Fresh, String> {
        let (mut asked, mut notes) = (Vec::new(), Vec::new());
        let mut lists = Vec::new();
        for mut whole in self.0 {
            notes.append(&mut whole.notes);
            let why = whole.gap.as_ref().map(|gap| gap.why.clone());
            // Many servers have resources and no templates.
            let usual = whole.kind == ListKind::Templates && whole.is_unknown();
            asked.push((whole.kind, why.filter(|_| !usual)));
            lists.extend(whole.counts_after(&before).then_some(whole));
        }
        let kinds: Vec<ListKind> = lists.iter().map(|list| list.kind).collect();
        let (watch, tools) = (watch.clone(), kinds.contains(&ListKind::Tools));
        let reading = task::blocking("lists.read", move || {
            let offer = lists.iter().fold(before, |offer, list| {
                let offer = offer.with(list.kind, &list.definitions);
                match list.freshness {
                    Some(freshness) => offer.fresh(list.kind, freshness),
                    None => offer,
                }
            });
            if tools {
                watch
                    .pins
                    .see(offer.server(), offer.tools(), &watch.rules)?;
            }
            Ok(offer)
        });
        let offer: Result<ServerOffer, String> = reading
            .await
            .unwrap_or_else(|broken| Err(broken.to_string()));
        Ok(Fresh {
            offer: offer?,
            kinds,
            notes,
            asked,
        })
    }
}

impl ListGap {
    fn of(method: &str, why: impl std::fmt::Display) -> Self {
        Self {
            why: format!("{method}: {why}"),
            unknown: false,
        }
    }

    /// A server's own error is shown by its message, not as JSON.
    fn refused(method: &str, refusal: &Refusal) -> Self {
        let Some(error) = refusal.relayed_error() else {
            return Self::of(method, refusal);
        };
        let code = code(error);
        let message = member(error, "message");
        let message: Option<String> = message.and_then(|text| serde_json::from_str(text).ok());
        let words = message.unwrap_or_else(|| "the server refuses".into());
        Self {
            why: match code {
                Some(code) => format!("{method}: {words} ({code})"),
                None => format!("{method}: {words}"),
            },
            unknown: code == Some(METHOD_NOT_FOUND),
        }
    }
}

impl Whole {
    fn none(kind: ListKind) -> Self {
        Self {
            kind,
            definitions: Vec::new(),
            freshness: None,
            notes: Vec::new(),
            gap: None,
        }
    }

    fn without(kind: ListKind, gap: ListGap) -> Self {
        Self {
            gap: Some(gap),
            ..Self::none(kind)
        }
    }

    fn is_unknown(&self) -> bool {
        self.gap.as_ref().is_some_and(|gap| gap.unknown)
    }

    /// Whether it replaces the list before it: if it is complete, if the server no longer has such a list, or
    /// if the one before is empty.
    fn counts_after(&self, before: &ServerOffer) -> bool {
        self.gap.is_none() || self.is_unknown() || before.count(self.kind) == 0
    }

    /// Fetches all pages, up to the first that fails.
    async fn fetch(link: &Arc<Link>, kind: ListKind, method: &str) -> Self {
        let mut whole = Self::none(kind);
        // What other nodes share of their tools is told beforehand, with what searching them needs.
        if let (ListKind::Tools, Wire::Node(node)) = (kind, link.wire()) {
            whole.definitions = node.tools();
            return whole;
        }
        whole.gap = whole.pages(link, method).await.err();
        whole
    }

    /// Some servers declare nothing and have tools all the same. Whatever goes wrong when they are asked for, there
    /// are none.
    async fn fetch_undeclared_tools(link: &Arc<Link>) -> Option<Self> {
        if matches!(link.wire(), Wire::Node(_) | Wire::Lite(_)) {
            return None;
        }
        let asked = Self::fetch(link, ListKind::Tools, "tools/list");
        let mut whole = tokio::time::timeout(SLOWER, asked).await.ok()?;
        if whole.gap.is_some() || whole.definitions.is_empty() {
            return None;
        }
        let note = "the server declares no tools in `capabilities`, and lists some";
        whole.notes.push(note.into());
        Some(whole)
    }

    async fn pages(&mut self, link: &Arc<Link>, method: &str) -> Result<(), ListGap> {
        let mut cursor = None::<String>;
        for _ in 0..MAX_PAGES {
            let params = cursor
                .as_ref()
                .map(|cursor| format!(r#"{{"cursor":{cursor}}}"#));
            let page = link.ask(method, params.as_deref()).await;
            let page = page.map_err(|refusal| ListGap::refused(method, &refusal))?;
            let next = self.take(page).map_err(|e| ListGap::of(method, e))?;
            if link.peer_in(Era::Modern).is_none() {
                self.freshness = None;
            }
            if next.is_none() {
                return Ok(());
            }
            if self.definitions.len() >= MAX_ITEMS {
                self.notes.push(format!(
                    "{method}: more than {MAX_ITEMS} entries; the rest is not shown"
                ));
                return Ok(());
            }
            if next == cursor {
                self.notes.push(format!(
                    "{method}: the same nextCursor twice; the list ends there"
                ));
                return Ok(());
            }
            cursor = next;
        }
        self.notes.push(format!(
            "{method}: more than {MAX_PAGES} pages; the rest is not shown"
        ));
        Ok(())
    }

    /// Reads one page; returns the next cursor as JSON text. The whole list is as fresh as its least fresh
    /// page.
    fn take(&mut self, page: bytes::Bytes) -> Result<Option<String>, String> {
        let page = std::str::from_utf8(&page).map_err(|_| "the answer is not UTF-8".to_owned())?;
        let key = self.kind.member();
        let list = member(page, key).ok_or_else(|| format!("no `{key}` in the answer"))?;
        let list: Vec<&RawValue> = match list {
            "null" => {
                self.notes
                    .push(format!("`{key}` is null, read as an empty list"));
                Vec::new()
            }
            list => serde_json::from_str(list).map_err(|e| format!("`{key}` is no list: {e}"))?,
        };
        let items = list.iter().map(|item| Arc::from(item.get()));
        self.definitions.extend(items);
        let fresh = Freshness::read(page);
        self.freshness = Some(self.freshness.map_or(fresh, |before| before.and(fresh)));
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

fn offered(can: ServerCapabilities, list: List) -> bool {
    match list {
        List::Tools => can.tools,
        List::Prompts => can.prompts,
        List::Resources => can.resources,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use mgp_engine::tools::catalog::freshness::Scope;

    use super::*;

    /// SEP-2549: a list may be cached as long as the page with the shortest time.
    #[test]
    fn a_list_is_as_fresh_as_its_least_fresh_page() {
        let mut whole = Whole::none(ListKind::Tools);
        let pages = [
            r#"{"tools":[{"name":"a"}],"ttlMs":9000,"cacheScope":"public","nextCursor":""}"#,
            r#"{"tools":[{"name":"b"}],"ttlMs":4000,"cacheScope":"private"}"#,
        ];
        let next = pages.map(|page| whole.take(Bytes::from_static(page.as_bytes())).unwrap());
        assert_eq!(next, [Some("\"\"".to_owned()), None]);
        let definitions = [r#"{"name":"a"}"#, r#"{"name":"b"}"#].map(Arc::from);
        assert_eq!(whole.definitions, definitions);
        let (ttl_ms, scope) = (4000, Scope::Private);
        assert_eq!(whole.freshness, Some(Freshness { ttl_ms, scope }));
    }
}
