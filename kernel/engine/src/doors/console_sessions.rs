//! Sign-ins to the console: links that can be used once, and the browsers that used one.
//!
//! A browser is authenticated by two secrets together: the cookie, which scripts cannot read, and the key of the
//! page, which other ports of the same machine do not receive, unlike the cookie. Only hashes of them are stored, in
//! memory alone: a restart signs everybody out.

use super::agent_registry::TokenDigest;

/// How long a link is valid, in milliseconds: the time a browser takes to open.
pub const LINK_LIFETIME_MS: u64 = 60_000;
/// How long a browser stays signed in, in milliseconds: a working day.
pub const SESSION_LIFETIME_MS: u64 = 12 * 3_600_000;
/// Most valid links; a further one revokes the oldest. A person opens one at a time.
pub(crate) const MAX_LINKS: usize = 4;
/// Most browsers signed in; a further one signs out the one that would expire first.
pub(crate) const MAX_BROWSERS: usize = 16;

/// A link that has not been used yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SignInLink {
    code: TokenDigest,
    expires_ms: u64,
}

/// The secrets that a browser sends with each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrowserSecrets {
    /// The hash of the cookie.
    pub cookie: TokenDigest,
    /// The hash of the key of the page.
    pub page_key: TokenDigest,
}

/// A browser that is signed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrowserSession {
    /// Its number, never reused.
    pub id: u64,
    /// When its sign-in ends, in milliseconds since 1970.
    pub expires_ms: u64,
    secrets: BrowserSecrets,
}

/// The link is unknown, used or expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this link was used already, or is older than a minute; `mgp console` makes another one")]
pub struct BadSignInLink;

/// The links and the browsers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsoleSessions {
    links: Vec<SignInLink>,
    sessions: Vec<BrowserSession>,
    last_id: u64,
}

impl ConsoleSessions {
    /// Adds a link that is valid for [`LINK_LIFETIME_MS`].
    pub fn add_link(&mut self, code: TokenDigest, now_ms: u64) {
        self.links.retain(|link| link.expires_ms > now_ms);
        if self.links.len() >= MAX_LINKS {
            self.links.remove(0);
        }
        self.links.push(SignInLink {
            code,
            expires_ms: now_ms.saturating_add(LINK_LIFETIME_MS),
        });
    }

    /// A browser uses a link, which is invalid from then on. Returns the browser, and the numbers of those that were
    /// signed out for it.
    ///
    /// # Errors
    /// [`BadSignInLink`].
    pub fn sign_in(
        &mut self,
        code: TokenDigest,
        secrets: BrowserSecrets,
        now_ms: u64,
    ) -> Result<(BrowserSession, Vec<u64>), BadSignInLink> {
        let shown = self.links.iter().position(|link| link.code.matches(code));
        let link = self.links.remove(shown.ok_or(BadSignInLink)?);
        if link.expires_ms <= now_ms {
            return Err(BadSignInLink);
        }
        let mut ended = self.expire_sessions(now_ms);
        if self.sessions.len() >= MAX_BROWSERS {
            // All sessions have the same lifetime, so the first one is the oldest.
            ended.push(self.sessions.remove(0).id);
        }
        self.last_id += 1;
        let browser = BrowserSession {
            id: self.last_id,
            expires_ms: now_ms.saturating_add(SESSION_LIFETIME_MS),
            secrets,
        };
        self.sessions.push(browser);
        Ok((browser, ended))
    }

    /// The browser with both secrets, unless it has expired.
    #[must_use]
    pub fn authenticate(&self, shown: BrowserSecrets, now_ms: u64) -> Option<BrowserSession> {
        let has_both = |browser: &&BrowserSession| {
            let secrets = browser.secrets;
            // Both are compared, even if the first one differs.
            secrets.cookie.matches(shown.cookie) & secrets.page_key.matches(shown.page_key)
        };
        let found = self.sessions.iter().find(has_both);
        found.filter(|browser| browser.expires_ms > now_ms).copied()
    }

    /// Signs one browser out; false when it was not signed in.
    pub fn sign_out(&mut self, number: u64) -> bool {
        let before = self.sessions.len();
        self.sessions.retain(|browser| browser.id != number);
        self.sessions.len() < before
    }

    /// Signs all browsers out and revokes every link. Returns the numbers of the browsers.
    pub fn sign_out_all(&mut self) -> Vec<u64> {
        self.links.clear();
        let browsers = std::mem::take(&mut self.sessions);
        browsers.iter().map(|browser| browser.id).collect()
    }

    /// Removes expired sessions.
    fn expire_sessions(&mut self, now_ms: u64) -> Vec<u64> {
        let over = self.sessions.extract_if(.., |b| b.expires_ms <= now_ms);
        over.map(|browser| browser.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str) -> TokenDigest {
        TokenDigest::new(text)
    }

    fn secrets(cookie: &str, key: &str) -> BrowserSecrets {
        BrowserSecrets {
            cookie: digest(cookie),
            page_key: digest(key),
        }
    }

    fn signed_in(at_ms: u64) -> (ConsoleSessions, BrowserSession) {
        let mut console = ConsoleSessions::default();
        console.add_link(digest("code"), at_ms);
        let (browser, _) = console
            .sign_in(digest("code"), secrets("cookie", "key"), at_ms)
            .unwrap();
        (console, browser)
    }

    /// Decision 0067: after a minute.
    #[test]
    fn a_link_is_valid_once_and_expires() {
        let (mut console, _) = signed_in(0);
        let again = console.sign_in(digest("code"), secrets("c", "k"), 1);
        assert_eq!(again.unwrap_err(), BadSignInLink);
        console.add_link(digest("late"), 0);
        let late = console.sign_in(digest("late"), secrets("c", "k"), LINK_LIFETIME_MS);
        assert_eq!(late.unwrap_err(), BadSignInLink);
        let early = console.sign_in(digest("late"), secrets("c", "k"), 1);
        assert_eq!(early.unwrap_err(), BadSignInLink, "shown late, it is gone");
        let guessed = console.sign_in(digest(""), secrets("c", "k"), 1);
        assert_eq!(guessed.unwrap_err(), BadSignInLink);
    }

    /// Decision 0067: of the same browser.
    #[test]
    fn a_browser_needs_both_secrets() {
        let (mut console, browser) = signed_in(0);
        console.add_link(digest("two"), 0);
        console
            .sign_in(digest("two"), secrets("cookie2", "key2"), 0)
            .unwrap();
        let judge = |cookie, key| console.authenticate(secrets(cookie, key), 1);
        assert_eq!(judge("cookie", "key"), Some(browser));
        for (cookie, key) in [
            ("cookie", ""),
            ("", "key"),
            ("key", "cookie"),
            ("cookie", "key2"),
            ("cookie2", "key"),
        ] {
            assert_eq!(judge(cookie, key), None, "{cookie} {key}");
        }
    }

    /// Decision 0067: or is ended by its number, or with all others.
    #[test]
    fn a_session_expires() {
        let (mut console, browser) = signed_in(0);
        let judge =
            |console: &ConsoleSessions, at| console.authenticate(secrets("cookie", "key"), at);
        assert_eq!(judge(&console, SESSION_LIFETIME_MS - 1), Some(browser));
        assert_eq!(judge(&console, SESSION_LIFETIME_MS), None);
        assert!(console.sign_out(browser.id) && !console.sign_out(browser.id));
        assert_eq!(judge(&console, 1), None);
        let (mut console, browser) = signed_in(0);
        console.add_link(digest("open"), 0);
        assert_eq!(console.sign_out_all(), [browser.id]);
        assert_eq!(judge(&console, 1), None);
        let open = console.sign_in(digest("open"), secrets("c", "k"), 1);
        assert_eq!(open.unwrap_err(), BadSignInLink);
    }

    /// Decision 0067.
    #[test]
    fn the_oldest_links_and_sessions_are_evicted() {
        let mut console = ConsoleSessions::default();
        for number in 0..=MAX_LINKS {
            console.add_link(digest(&number.to_string()), 0);
        }
        let oldest = console.sign_in(digest("0"), secrets("c", "k"), 0);
        assert_eq!(oldest.unwrap_err(), BadSignInLink);
        let mut numbers = Vec::new();
        for number in 0..=MAX_BROWSERS {
            let name = number.to_string();
            console.add_link(digest(&name), 0);
            let (browser, ended) = console
                .sign_in(digest(&name), secrets(&name, &name), 0)
                .unwrap();
            numbers.push(browser.id);
            let first = (number == MAX_BROWSERS).then(|| numbers[0]);
            assert_eq!(ended, first.into_iter().collect::<Vec<_>>());
        }
        assert_eq!(console.authenticate(secrets("0", "0"), 1), None);
        assert!(console.authenticate(secrets("1", "1"), 1).is_some());
    }
}
