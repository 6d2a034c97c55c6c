//! Packages whose servers have no state between calls: their data is in files or at a service, so a stop loses nothing.
//! Browsers, interpreters and servers with a memory or sessions of their own do not belong here.

const STATELESS: &[&str] = &[
    "@brave/brave-search-mcp-server",
    "@modelcontextprotocol/server-brave-search",
    "@modelcontextprotocol/server-filesystem",
    "@modelcontextprotocol/server-gitlab",
    "@modelcontextprotocol/server-github",
    "@modelcontextprotocol/server-google-maps",
    "@modelcontextprotocol/server-postgres",
    "@modelcontextprotocol/server-slack",
    "@notionhq/notion-mcp-server",
    "@upstash/context7-mcp",
    "exa-mcp-server",
    "firecrawl-mcp",
    "ghcr.io/github/github-mcp-server",
    "mcp-server-fetch",
    "mcp-server-git",
    "mcp-server-time",
    "mcp/fetch",
    "mcp/time",
    "tavily-mcp",
];

/// Whether this command line runs such a package.
pub(super) fn is_stateless(words: &[String]) -> bool {
    words
        .iter()
        .any(|word| STATELESS.contains(&without_version(word)))
}

/// The name of a package without `@VERSION`, `==VERSION` or `:TAG`.
fn without_version(word: &str) -> &str {
    let word = word.split_once("==").map_or(word, |(name, _)| name);
    match word.rfind(['@', ':']) {
        Some(at) if at > 0 && !word[at..].contains('/') => &word[..at],
        Some(_) | None => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_known(command: &str) -> bool {
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        is_stateless(&words)
    }

    #[test]
    fn packages_are_known_in_any_version() {
        for command in [
            "npx -y @upstash/context7-mcp",
            "npx -y @upstash/context7-mcp@1.0.14",
            "npx @modelcontextprotocol/server-filesystem /home/me",
            "uvx mcp-server-fetch==2025.4.7",
            "docker run -i --rm ghcr.io/github/github-mcp-server:0.5",
        ] {
            assert!(is_known(command), "{command}");
        }
    }

    /// A stop would lose a page, a variable or a thought.
    #[test]
    fn servers_with_a_state_are_not_known() {
        for command in [
            "npx @playwright/mcp@latest",
            "npx -y @modelcontextprotocol/server-sequential-thinking",
            "npx -y @modelcontextprotocol/server-memory",
            "uvx mcp-server-fetch-and-remember",
            "node server.js",
        ] {
            assert!(!is_known(command), "{command}");
        }
    }
}
