//! Tools as the operator has them shown: under another name, with other words, or not at all (decision 52).
//!
//! What a tool is judged by stays its server's own definition. So does the name that a call carries to the server, and
//! by which grants, pins and records know it.

use std::collections::HashSet;
use std::sync::Arc;

use mgp_json::{Splice, member, members, quote};

use super::ServerOffer;
use super::item::{CatalogTool, rename_member};
use crate::policy::requirements::ToolRule;

impl ServerOffer {
    /// The same offer as agents are shown it, and in words what of the operator's rules could not be done.
    #[must_use]
    pub fn with_overrides(mut self) -> (Self, Vec<String>) {
        let rules = Arc::clone(&self.requirement_inputs().rules);
        let rule = |tool: &CatalogTool| {
            rules
                .for_tool(&tool.own_name)
                .filter(|rule| rule.has_presentation())
        };
        let tools = self.shared_tools();
        let hides = |tool: &CatalogTool| rules.is_hidden(&tool.own_name);
        if !tools.iter().any(|tool| rule(tool).is_some() || hides(tool)) {
            return (self, Vec::new());
        }
        // A name of the server's own stays that tool's, whatever another one is to be called.
        let mut taken: HashSet<Arc<str>> = tools.iter().map(|tool| tool.own_name.clone()).collect();
        let mut refused = Vec::new();
        let mut shown = Vec::with_capacity(tools.len());
        for tool in &*tools {
            match rule(tool) {
                _ if hides(tool) => {}
                None => shown.push(Arc::clone(tool)),
                Some(rule) => {
                    let wanted = rule.name.as_deref().filter(|name| *name != &*tool.own_name);
                    let free = wanted.filter(|name| taken.insert((*name).into()));
                    if let (Some(wanted), None) = (wanted, free) {
                        refused.push(format!(
                            "tool {} keeps its name: the server has another one called {wanted}",
                            tool.own_name
                        ));
                    }
                    shown.push(Arc::new(tool.with_rule(free, rule)));
                }
            }
        }
        self.tools.items = shown.into();
        (self, refused)
    }
}

impl CatalogTool {
    fn with_rule(&self, name: Option<&str>, rule: &ToolRule) -> Self {
        let mut text = Arc::clone(&self.raw);
        if let Some(name) = name {
            text = rename_member(&text, "name", name);
        }
        if let Some(words) = &rule.description {
            text = with_description(&text, words);
        }
        self.with_override(name, text)
    }
}

/// The definition with another description. Where it has several, a reader takes the first and another the last.
fn with_description(raw: &str, words: &str) -> Arc<str> {
    let (mut splice, words) = (Splice::new(raw), quote(words));
    match member(raw, "description") {
        None => splice.insert_member(raw, "description", &words),
        Some(_) => {
            let all = members(raw).unwrap_or_default();
            for (_, said) in all.into_iter().filter(|(name, _)| name == "description") {
                splice.replace(said.get(), words.clone());
            }
        }
    }
    splice.finish().into()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use mgp_protocol::dialect::ProtocolFamily;
    use mgp_protocol::ids::ServerId;

    use super::super::cursor::CursorKey;
    use super::super::{Catalog, CatalogView, ListKind, Paging};
    use super::*;
    use crate::policy::requirements::{RequirementInputs, ToolRules};

    const ECHO: &str = r#"{"name":"echo","description":"theirs","inputSchema":{"type":"object","properties":{"a":{"type":"integer"}}},"description":"theirs, too"}"#;
    const TIME: &str = r#"{"inputSchema":{"type":"object"},"name":"time"}"#;

    fn rule(name: Option<&str>, description: Option<&str>, hidden: bool) -> ToolRule {
        ToolRule {
            name: name.map(str::to_owned),
            description: description.map(str::to_owned),
            hidden,
            ..ToolRule::default()
        }
    }

    fn offered(rules: &[(&str, ToolRule)]) -> (Catalog, Vec<String>) {
        let tools = rules
            .iter()
            .cloned()
            .map(|(tool, rule)| (tool.to_owned(), rule));
        let rules = ToolRules {
            tools: tools.collect(),
            ..ToolRules::default()
        };
        let terms = RequirementInputs {
            rules: Arc::new(rules),
            ..RequirementInputs::default()
        };
        let offer = ServerOffer::new(ServerId::new("it"));
        let offer = offer
            .with_requirements(Arc::new(terms))
            .with_list(ListKind::Tools, &[ECHO, TIME]);
        let (offer, refused) = offer.with_overrides();
        let catalog = Catalog::empty(Paging::new(CursorKey::new([1; 32])));
        (catalog.with_offers(&[Arc::new(offer)]), refused)
    }

    #[test]
    fn tools_outside_the_allowed_list_are_hidden() {
        let rules = ToolRules {
            offered: Some(["echo".to_owned()].into()),
            ..ToolRules::default()
        };
        let terms = RequirementInputs {
            rules: Arc::new(rules),
            ..RequirementInputs::default()
        };
        let offer = ServerOffer::new(ServerId::new("it")).with_requirements(Arc::new(terms));
        let (offer, refused) = offer
            .with_list(ListKind::Tools, &[ECHO, TIME])
            .with_overrides();
        let names: Vec<_> = offer
            .tools
            .items
            .iter()
            .map(|tool| &*tool.own_name)
            .collect();
        assert_eq!((names, refused), (vec!["echo"], Vec::new()));
    }

    fn page(catalog: &Catalog, view: &CatalogView) -> String {
        let page: Bytes = catalog
            .page(view, ListKind::Tools, None, ProtocolFamily::Stateless)
            .unwrap();
        String::from_utf8(page.to_vec()).unwrap()
    }

    /// Decision 52: agents see and call the new name; the server, its schema and the rules know the old one.
    #[test]
    fn a_renamed_tool_keeps_its_own_name_for_the_server() {
        let (catalog, refused) = offered(&[("echo", rule(Some("say"), Some("ours"), false))]);
        assert_eq!(refused, [""; 0]);
        for (view, called) in [
            (CatalogView::All, "it__say"),
            (CatalogView::One(ServerId::new("it")), "say"),
        ] {
            let text = page(&catalog, &view);
            assert!(text.contains(&format!("\"name\":\"{called}\"")), "{text}");
            assert!(
                text.contains("ours") && !text.contains("theirs") && !text.contains("echo"),
                "{text}"
            );
            let tool = catalog.tool(&view, called).unwrap();
            assert_eq!(
                (&*tool.own_name, &*tool.own_name_json),
                ("echo", "\"echo\"")
            );
            assert_eq!(tool.name_in_view(&view), called);
            assert_eq!(&*tool.raw, ECHO, "it is judged by its server's words");
            assert!(
                tool.input
                    .text(&tool.raw)
                    .is_none_or(|schema| schema.contains("integer"))
            );
        }
        // Who knows it by its server's name still reaches it.
        for name in ["it:echo", "it__echo", "it:say", "echo"] {
            assert_eq!(
                &*catalog.tool(&CatalogView::All, name).unwrap().own_name,
                "echo",
                "{name}"
            );
        }
        let (catalog, _) = offered(&[("time", rule(None, Some("of day"), false))]);
        assert!(page(&catalog, &CatalogView::All).contains("of day"));
    }

    /// Decision 52: no tool takes another one's name, and a hidden one is there by none.
    #[test]
    fn an_override_cannot_take_an_own_name() {
        let both = [
            ("echo", rule(Some("time"), None, false)),
            ("time", rule(Some("echo"), None, false)),
        ];
        let (catalog, refused) = offered(&both);
        assert_eq!(refused.len(), 2, "{refused:?}");
        for (name, own) in [
            ("it__time", "time"),
            ("it__echo", "echo"),
            ("it:time", "time"),
        ] {
            assert_eq!(
                &*catalog.tool(&CatalogView::All, name).unwrap().own_name,
                own
            );
        }
        let (catalog, refused) = offered(&[("echo", rule(None, None, true))]);
        assert_eq!(refused, [""; 0]);
        for name in ["it__echo", "it:echo", "echo"] {
            assert!(catalog.tool(&CatalogView::All, name).is_none(), "{name}");
        }
        let one = CatalogView::One(ServerId::new("it"));
        assert!(catalog.tool(&one, "echo").is_none() && !page(&catalog, &one).contains("echo"));
    }
}
