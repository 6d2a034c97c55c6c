//! Fetches a server's lists page by page (MCP-030). A failed list does not affect the others.

mod fetching;
mod last_lists;
pub(super) mod missing;
mod offers;
pub(super) mod pace;
mod restoration;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mgp_engine::policy::pins::{
    Definition, DefinitionKind, INSTRUCTIONS_NAME, PinRules, prompt_name,
};
use mgp_engine::tools::catalog::freshness::Freshness;
use mgp_engine::tools::catalog::{ListKind, ServerOffer};
use mgp_json::{member, quote};
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::jsonrpc::METHOD_NOT_FOUND;
use mgp_protocol::mcp::ServerCapabilities;
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

pub(super) use self::last_lists::LastOffer;
use crate::link::{Link, List, Wire, error_code};
use mgp_callers::Flag;
use mgp_policy::PinsHandle;
use mgp_runtime::task;

/// The most pages fetched of one list, so that an endless list ends.
const MAX_PAGES: usize = 1_000;
/// How long the other lists may take after the first one. Slower lists are fetched again later.
const SLOW_LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// The most definitions read of one list; the engine stores no more.
const MAX_ITEMS: usize = 10_000;

/// Freshly fetched lists, parsed and compiled.
#[derive(Debug)]
pub struct FetchedLists {
    offer: ServerOffer,
    kinds: Vec<ListKind>,
    /// Problems found in the lists.
    pub(crate) remarks: Vec<String>,
    /// The fetched lists, each with the reason if it is incomplete.
    pub(super) fetched: Vec<(ListKind, Option<String>)>,
}

impl FetchedLists {
    /// Creates a result without fetched lists.
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

/// Compares tools with their pinned definitions before agents see them.
#[derive(Debug, Clone)]
pub(super) struct PinCheck {
    pub(super) pins: PinsHandle,
    pub(super) rules: PinRules,
}

impl PinCheck {
    /// Compares what models read of an offer with its pins. Blocks.
    ///
    /// # Errors
    /// The server's file cannot be used.
    fn compare(&self, offer: &ServerOffer, instructions: Option<&str>) -> Result<(), String> {
        let tools = offer.tools().iter().map(|tool| Definition::from(&**tool));
        let prompts = offer.prompts().iter().map(|prompt| Definition {
            own_name: prompt_name(&prompt.own_name).into(),
            text: prompt.raw.clone(),
            kind: DefinitionKind::Prompt,
        });
        let instructions = instructions.map(|text| Definition {
            own_name: INSTRUCTIONS_NAME.into(),
            text: format!(r#"{{"instructions":{}}}"#, quote(text)).into(),
            kind: DefinitionKind::Instructions,
        });
        let all = tools.chain(prompts).chain(instructions);
        self.pins.compare(offer.server(), all, &self.rules)
    }
}

fn read_instructions(link: &Link) -> Option<Box<str>> {
    link.peer()?.instructions.clone()
}

/// One list with all its pages.
#[derive(Debug)]
struct FetchedList {
    kind: ListKind,
    definitions: Vec<Arc<str>>,
    /// How long it may be cached, if the server's protocol version says so.
    freshness: Option<Freshness>,
    remarks: Vec<String>,
    /// The reason if it is incomplete.
    gap: Option<ListGap>,
}

/// The reason why a list is incomplete.
#[derive(Debug)]
struct ListGap {
    why: String,
    /// True if the server does not have this list: the definitions of earlier generations are dropped.
    is_unsupported: bool,
}

/// Freshly fetched lists, with definitions as sent.
#[derive(Debug)]
pub(super) struct RawLists(Vec<FetchedList>);

impl RawLists {
    /// Fetches all declared lists; definitions equal to those in `before` are not compiled again. A failed list
    /// is left out; slow lists are awaited only briefly once the first is there.
    ///
    /// # Errors
    /// The reason why none of the declared lists could be fetched, as text.
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
                .compile(before, watch, read_instructions(link))
                .await;
        }
        let first = Flag::default();
        let fetches = wanted.iter().enumerate().map(|(at, (kind, method))| {
            let first = &first;
            async move {
                let list = FetchedList::fetch(link, *kind, method);
                if at == 0 {
                    let list = list.await;
                    first.raise();
                    return list;
                }
                tokio::select! {
                    list = list => list,
                    () = async { first.wait_until_raised().await; tokio::time::sleep(SLOW_LIST_TIMEOUT).await } => {
                        FetchedList::failed(*kind, ListGap::new(method, "no answer yet"))
                    }
                }
            }
        });
        let mut all = join_all(fetches).await;
        let mut main = all.iter().filter(|list| list.kind != ListKind::Templates);
        if let Some(gap) = main.clone().find_map(|list| list.gap.as_ref())
            && main.all(|list| list.gap.is_some() && list.definitions.is_empty())
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
        Self(all)
            .compile(before, watch, read_instructions(link))
            .await
    }

    /// Fetches one list again; if that fails the list stays unchanged.
    pub(super) async fn fetch_one(
        link: &Arc<Link>,
        list: List,
        before: ServerOffer,
        watch: &PinCheck,
    ) -> FetchedLists {
        let can = link.peer().map(|p| p.capabilities).unwrap_or_default();
        // Found at the start, though it had not declared them.
        let listed = list == List::Tools && !before.tools().is_empty();
        let fetched = kinds(list).iter().map(|(kind, method)| async move {
            if listed || is_declared(can, list) {
                FetchedList::fetch(link, *kind, method).await
            } else {
                FetchedList::empty(*kind)
            }
        });
        let lists = Self(join_all(fetched).await);
        let read = lists.compile(before.clone(), watch, read_instructions(link));
        let read = read.await;
        read.unwrap_or_else(|why| FetchedLists {
            offer: before,
            kinds: Vec::new(),
            remarks: vec![why],
            fetched: Vec::new(),
        })
    }

    /// Compiles the definitions on a blocking thread, because compiling schemas takes time and pins are on disk.
    async fn compile(
        self,
        before: ServerOffer,
        watch: &PinCheck,
        instructions: Option<Box<str>>,
    ) -> Result<FetchedLists, String> {
        let (mut fetched, mut notes) = (Vec::new(), Vec::new());
        let mut lists = Vec::new();
        for mut list in self.0 {
            notes.append(&mut list.remarks);
            let why = list.gap.as_ref().map(|gap| gap.why.clone());
            // Many servers have resources and no templates.
            let usual = list.kind == ListKind::Templates && list.is_unknown();
            fetched.push((list.kind, why.filter(|_| !usual)));
            lists.extend(list.should_replace(&before).then_some(list));
        }
        let kinds: Vec<ListKind> = lists.iter().map(|list| list.kind).collect();
        let is_pinned = |kind: &ListKind| matches!(kind, ListKind::Tools | ListKind::Prompts);
        let (watch, compares) = (watch.clone(), kinds.iter().any(is_pinned));
        let reading = task::run_blocking("lists.read", move || {
            let offer = lists.iter().fold(before, |offer, list| {
                let offer = offer.with_list(list.kind, &list.definitions);
                match list.freshness {
                    Some(freshness) => offer.with_freshness(list.kind, freshness),
                    None => offer,
                }
            });
            if compares || instructions.is_some() {
                watch.compare(&offer, instructions.as_deref())?;
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
            fetched,
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

    /// Describes a refusal; a server's own error is shown by its message, not as JSON.
    fn from_refusal(method: &str, refusal: &Refusal) -> Self {
        let Some(error) = refusal.relayed_error() else {
            return Self::new(method, refusal);
        };
        let code = error_code(error);
        let message = member(error, "message");
        let message: Option<String> = message.and_then(|text| serde_json::from_str(text).ok());
        let text = message.unwrap_or_else(|| "the server refuses".into());
        Self {
            why: match code {
                Some(code) => format!("{method}: {text} ({code})"),
                None => format!("{method}: {text}"),
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

    /// True if it replaces the previous list: it is complete, the server no longer has such a list, or the
    /// previous one is empty.
    fn should_replace(&self, before: &ServerOffer) -> bool {
        self.gap.is_none() || self.is_unknown() || before.count(self.kind) == 0
    }

    /// Fetches all pages, up to the first that fails.
    async fn fetch(link: &Arc<Link>, kind: ListKind, method: &str) -> Self {
        let mut list = Self::empty(kind);
        // The tools of other nodes are announced in advance, with their search data.
        if let (ListKind::Tools, Wire::Node(node)) = (kind, link.wire()) {
            list.definitions = node.tools();
            return list;
        }
        list.gap = list.fetch_pages(link, method).await.err();
        list
    }

    /// Fetches tools from servers that declare no capabilities but have tools. Any failure counts as no tools.
    async fn fetch_undeclared_tools(link: &Arc<Link>) -> Option<Self> {
        if matches!(link.wire(), Wire::Node(_) | Wire::Lite(_)) {
            return None;
        }
        let fetch = Self::fetch(link, ListKind::Tools, "tools/list");
        let mut list = tokio::time::timeout(SLOW_LIST_TIMEOUT, fetch).await.ok()?;
        if list.gap.is_some() || list.definitions.is_empty() {
            return None;
        }
        let note = "the server declares no tools in `capabilities`, and lists some";
        list.remarks.push(note.into());
        Some(list)
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

    /// Parses one page and returns the next cursor as JSON text. The list's TTL is the shortest of its pages.
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
        // The cursor as the server wrote it: some use numbers.
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

    /// SEP-2549: a list may be cached as long as its page with the shortest TTL.
    #[test]
    fn list_ttl_is_shortest_page_ttl() {
        let mut list = FetchedList::empty(ListKind::Tools);
        let pages = [
            r#"{"tools":[{"name":"a"}],"ttlMs":9000,"cacheScope":"public","nextCursor":""}"#,
            r#"{"tools":[{"name":"b"}],"ttlMs":4000,"cacheScope":"private"}"#,
        ];
        let next = pages.map(|page| list.add_page(Bytes::from_static(page.as_bytes())).unwrap());
        assert_eq!(next, [Some("\"\"".to_owned()), None]);
        let definitions = [r#"{"name":"a"}"#, r#"{"name":"b"}"#].map(Arc::from);
        assert_eq!(list.definitions, definitions);
        let (ttl_ms, scope) = (4000, CacheScope::Private);
        assert_eq!(list.freshness, Some(Freshness { ttl_ms, scope }));
    }
}
