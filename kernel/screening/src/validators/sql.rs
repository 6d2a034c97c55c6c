//! Detects SQL that writes. Databases differ in the end of strings and comments, so a text is parsed in
//! each dialect, and one writing interpretation is enough to reject.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use super::ArgumentFinding;
use tokens::{DIALECTS, SqlDialect, Token, is_read_equally, tokenize};

mod tokens;

const HINT: &str =
    "send one statement that only reads: SELECT, WITH … SELECT, SHOW, DESCRIBE, EXPLAIN";

/// First words of statements that read.
const READING: [&str; 14] = [
    "select", "with", "show", "describe", "desc", "explain", "values", "table", "pragma", "use",
    "begin", "commit", "rollback", "help",
];

/// Pragmas of SQLite that read even with a value in parentheses.
const PRAGMAS: [&str; 15] = [
    "table_info",
    "table_xinfo",
    "table_list",
    "index_info",
    "index_xinfo",
    "index_list",
    "foreign_key_list",
    "foreign_key_check",
    "database_list",
    "collation_list",
    "function_list",
    "compile_options",
    "integrity_check",
    "quick_check",
    "module_list",
];

/// Functions that may be called.
static FUNCTIONS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let lines = include_str!("functions.txt").lines();
    let named = lines.filter(|line| !line.starts_with('#'));
    named.flat_map(str::split_whitespace).collect()
});

/// System schemas, whose functions are those of the list.
const OWN_SCHEMAS: [&str; 4] = ["pg_catalog", "information_schema", "sys", "system"];

/// Words before a parenthesis that is no call: words of the language, types and clauses.
const NO_CALLS: &str = "select distinct all any some exists not and or xor in between like ilike rlike \
    regexp match similar is as on using from join lateral apply unnest where by having limit offset \
    fetch top option union except intersect minus values row with recursive over partition filter group within \
    order rows range groups case when then else end explain analyze materialized set sets rollup cube \
    array interval at escape return returns into table tables tablesample bernoulli system repeatable \
    index key force ignore use nolock window pivot unpivot for columns nested path ordinality pattern \
    measures define qualify exclude rename nulls sample settings format buffers verbose decimal numeric \
    dec number varchar varchar2 nvarchar char nchar character varying bit varbit binary varbinary float \
    double real int integer bigint smallint tinyint time timetz timestamp timestamptz datetime datetime2 \
    datetimeoffset varying text string fixedstring enum nullable lowcardinality struct map tuple vector \
    begin show describe desc collate cross inner left right full outer natural of isolation default";

static LANGUAGE: LazyLock<HashSet<&str>> = LazyLock::new(|| NO_CALLS.split_whitespace().collect());

/// Words after `BEGIN` that open a transaction and no block of statements.
const TRANSACTIONS: [&str; 7] = [
    "transaction",
    "tran",
    "work",
    "isolation",
    "read",
    "deferred",
    "not",
];

/// Words that may follow the name of a column.
const AFTER_NAMES: [&str; 15] = [
    "from", "as", "and", "or", "where", "is", "in", "like", "not", "between", "order", "group",
    "desc", "asc", "then",
];

/// Words that may follow the name of a table, too.
const AFTER_TABLES: [&str; 19] = [
    "when",
    "else",
    "end",
    "join",
    "left",
    "right",
    "inner",
    "full",
    "cross",
    "natural",
    "on",
    "using",
    "having",
    "limit",
    "offset",
    "fetch",
    "union",
    "except",
    "intersect",
];

/// Words that need a continuation: the word after them begins no statement.
const BEFORE_NAMES: [&str; 22] = [
    "select", "distinct", "all", "from", "join", "by", "where", "having", "and", "or", "not", "as",
    "on", "in", "like", "between", "is", "when", "then", "else", "case", "with",
];

/// First words of statements of SQL Server, which needs no semicolon before them.
const BATCHED: [&str; 31] = [
    "alter",
    "backup",
    "bulk",
    "checkpoint",
    "commit",
    "create",
    "dbcc",
    "delete",
    "deny",
    "drop",
    "exec",
    "execute",
    "grant",
    "insert",
    "kill",
    "merge",
    "open",
    "reconfigure",
    "restore",
    "revert",
    "revoke",
    "rollback",
    "set",
    "setuser",
    "shutdown",
    "truncate",
    "update",
    "updatetext",
    "use",
    "waitfor",
    "writetext",
];

/// Of these, the ones that stand alone.
const ALONE: [&str; 7] = [
    "checkpoint",
    "commit",
    "reconfigure",
    "revert",
    "rollback",
    "setuser",
    "shutdown",
];

/// Words in the parenthesis behind a table of SQL Server that lock it.
const LOCKS: [&str; 7] = [
    "holdlock", "paglock", "rowlock", "tablock", "tablockx", "updlock", "xlock",
];

/// True if a text without a known role is SQL: the head of a statement, not of a sentence.
pub(super) fn is_statement(text: &str) -> bool {
    let tokens = tokenize(text, SqlDialect::default());
    let mut parts = tokens.split_inclusive(|token| *token == Token::Sign(';'));
    parts.any(is_head_of_statement)
}

fn is_head_of_statement(tokens: &[Token]) -> bool {
    let is_explained = |token: &&Token| matches!(token, Token::Word(word) if matches!(&**word, "explain" | "desc" | "describe"));
    let tokens = &tokens[tokens.iter().take_while(is_explained).count()..];
    let word = |at: usize| match tokens.get(at) {
        Some(Token::Word(w)) => w.as_str(),
        Some(Token::Quoted(_) | Token::Sign(_)) | None => "",
    };
    let has = |wanted: &str| tokens.iter().any(|t| *t == Token::Word(wanted.into()));
    match word(0) {
        "select" => has("from") || has("into") || has_call(tokens) || tokens.len() < 3,
        "analyze" | "call" | "exec" | "execute" | "do" => has_call(tokens) || has("from"),
        "copy" => has("from") || has("to"),
        "load" => word(1) == "data",
        "set" => {
            matches!(word(1), "global" | "session" | "role") || tokens.contains(&Token::Sign('='))
        }
        "kill" => tokens.len() == 2 && word(1).bytes().all(|c| c.is_ascii_digit()),
        "with" => has("as") && (has("select") || has("insert") || has("delete") || has("update")),
        "insert" | "replace" => {
            matches!(word(1), "into" | "overwrite") && (has("values") || has("select"))
        }
        "update" => has("set") && tokens.contains(&Token::Sign('=')),
        "delete" => {
            word(1) == "from"
                && (tokens.len() == 3 || has("where") || tokens.contains(&Token::Sign(';')))
        }
        "drop" | "create" | "alter" | "truncate" => {
            matches!(
                word(1),
                "table" | "database" | "schema" | "view" | "index" | "user" | "role" | "trigger"
            ) && (tokens.len() <= 3
                || tokens.iter().any(|t| matches!(t, Token::Sign(_)))
                || has("exists")
                || has("add")
                || has("cascade"))
        }
        "grant" | "revoke" => has("on") && (has("to") || has("from")),
        "merge" => word(1) == "into",
        "vacuum" | "attach" => tokens.len() <= 4,
        _ => false,
    }
}

/// True for a name and its parenthesis.
fn has_call(tokens: &[Token]) -> bool {
    let is_call = |pair: &[Token]| matches!(pair, [Token::Word(_), Token::Sign('(')]);
    tokens.windows(2).any(is_call)
}

/// The first construct of an SQL text that does more than read.
pub(super) fn check(text: &str) -> Option<ArgumentFinding> {
    let text = &split_batches(text);
    if let Some(line) = text.lines().find(|line| is_client_command(line)) {
        return write_finding(line.trim());
    }
    let mut last = Vec::new();
    let dialects = if is_read_equally(text) {
        &DIALECTS[..1]
    } else {
        &DIALECTS
    };
    dialects.iter().find_map(|differ| {
        let mut dialect = SqlDialect::default();
        differ(&mut dialect);
        let tokens = tokenize(text, dialect);
        // Most texts are parsed equally in all of them.
        if tokens == last {
            return None;
        }
        let mut statements = tokens.split(|t| *t == Token::Sign(';'));
        let found = statements.find_map(check_statement);
        last = tokens;
        found
    })
}

/// Ends a statement at each line `GO` or `/`, as shells of databases do.
fn split_batches(text: &str) -> Cow<'_, str> {
    let is_end = |line: &str| matches!(line.trim(), "/" | "go" | "GO" | "Go" | "gO");
    if !text.lines().any(is_end) {
        return Cow::Borrowed(text);
    }
    let lines = text
        .lines()
        .map(|line| if is_end(line) { ";" } else { line });
    Cow::Owned(lines.collect::<Vec<_>>().join("\n"))
}

/// True for a line by which shells of databases run programs, or read and write files.
fn is_client_command(line: &str) -> bool {
    let line = line.trim().to_ascii_lowercase();
    if let Some(program) = line.strip_prefix('!') {
        return program.starts_with(|c: char| c == '!' || c.is_ascii_alphabetic());
    }
    let mut words = line.split_whitespace();
    let named = match words.next().unwrap_or_default() {
        "host" | "#host" | "spool" | ":r" | ":out" | ":connect" | ":setvar" => true,
        first => first.starts_with(":!!"),
    };
    // A column or a parameter of this name goes on with an operator or a word of the language.
    let is_argument = |word: &str| {
        word.starts_with(|c: char| c.is_alphanumeric() || "./\\\"'$".contains(c))
            && !AFTER_NAMES.contains(&word)
    };
    named && words.next().is_some_and(is_argument)
}

fn write_finding(what: &str) -> Option<ArgumentFinding> {
    Some(ArgumentFinding::new(
        "sql",
        format!("{what} does not only read"),
        HINT,
    ))
}

fn check_statement(tokens: &[Token]) -> Option<ArgumentFinding> {
    let mut rest = tokens.iter().skip_while(|t| **t == Token::Sign('('));
    let first = match rest.next()? {
        Token::Word(word) => word.as_str(),
        Token::Quoted(_) | Token::Sign(_) => return write_finding("what begins with no keyword"),
    };
    if !READING.contains(&first) {
        return write_finding(&first.to_uppercase());
    }
    if first == "pragma" {
        return check_pragma(tokens);
    }
    if matches!(first, "show" | "describe" | "desc" | "help") {
        return check_show(tokens);
    }
    let second = match rest.clone().next() {
        Some(Token::Word(word)) => word.as_str(),
        Some(Token::Quoted(_) | Token::Sign(_)) | None => "",
    };
    if matches!(
        (first, second),
        ("commit" | "rollback", "prepared" | "force") | ("use", "role" | "secondary")
    ) {
        return write_finding(&format!("{first} {second}").to_uppercase());
    }
    if first == "begin"
        && let Some(Token::Word(next)) = rest.next()
        && !TRANSACTIONS.contains(&next.as_str())
    {
        return write_finding("a block of statements");
    }
    find_write(tokens).or_else(|| find_unlisted_call(tokens))
}

/// Checks what shows or describes, which may also be a query or end in a file.
fn check_show(tokens: &[Token]) -> Option<ArgumentFinding> {
    let is_word = |token: &Token, wanted: &[&str]| matches!(token, Token::Word(word) if wanted.contains(&&**word));
    if tokens.iter().any(|token| is_word(token, &["into"])) {
        return write_finding("INTO");
    }
    let flow = [Token::Sign('-'), Token::Sign('>'), Token::Sign('>')];
    if tokens.windows(3).any(|signs| signs == flow) {
        return write_finding("a chain of statements");
    }
    let queries = ["analyze", "select", "with"];
    let is_query = tokens.get(1).is_some_and(|token| is_word(token, &queries));
    is_query
        .then(|| find_write(tokens))
        .flatten()
        .or_else(|| find_unlisted_call(tokens))
}

fn check_pragma(tokens: &[Token]) -> Option<ArgumentFinding> {
    let named = tokens.iter().rev().any(|t| match t {
        Token::Word(w) => PRAGMAS.contains(&w.rsplit('.').next().unwrap_or_default()),
        Token::Quoted(_) | Token::Sign(_) => false,
    });
    let sets = tokens.contains(&Token::Sign('='));
    let given = tokens.contains(&Token::Sign('('));
    let asks = tokens.len() <= 2
        && !matches!(tokens.last(), Some(Token::Word(w)) if
        ["optimize", "incremental_vacuum", "wal_checkpoint", "shrink_memory"].contains(&w.as_str()));
    (sets || !named && (given || !asks)).then(|| write_finding("this PRAGMA"))?
}

/// Finds writes within a statement that begins like a reading one.
fn find_write(tokens: &[Token]) -> Option<ArgumentFinding> {
    let word = |at: usize| match tokens.get(at) {
        Some(Token::Word(w)) => w.as_str(),
        Some(Token::Quoted(_) | Token::Sign(_)) | None => "",
    };
    for at in 0..tokens.len() {
        let before = at.checked_sub(1).map(word).unwrap_or_default();
        let opens = at == 0
            || matches!(tokens.get(at - 1), Some(Token::Sign('(' | ')')))
            || matches!(
                before,
                "analyze" | "explain" | "begin" | "verbose" | "plan" | "then"
            );
        let called = tokens.get(at + 1) == Some(&Token::Sign('('));
        match word(at) {
            "into" => return write_finding("INTO"),
            "insert" | "delete" | "update" | "merge" | "create" | "drop" | "alter" | "truncate"
            | "execute"
                if opens && !called =>
            {
                return write_finding(&word(at).to_uppercase());
            }
            "create" if word(at + 1) == "or" && matches!(word(at + 2), "alter" | "replace") => {
                return write_finding("CREATE");
            }
            first if BATCHED.contains(&first) && can_begin_statement(tokens, at) => {
                return write_finding(&first.to_uppercase());
            }
            "delete" if word(at + 1) == "from" => return write_finding("DELETE"),
            "for"
                if matches!(word(at + 1), "update" | "share")
                    || word(at + 1) == "no" && word(at + 2) == "key" =>
            {
                return write_finding("FOR UPDATE");
            }
            _ => {}
        }
        if let Some(finding) = find_side_effect(tokens, at) {
            return Some(finding);
        }
    }
    None
}

/// Finds side effects: locks, sequences, variables, and commands of clients.
fn find_side_effect(tokens: &[Token], at: usize) -> Option<ArgumentFinding> {
    let word = |at: usize| match tokens.get(at) {
        Some(Token::Word(w)) => w.as_str(),
        Some(Token::Quoted(_) | Token::Sign(_)) | None => "",
    };
    let sign = |at: usize, sign: char| tokens.get(at) == Some(&Token::Sign(sign));
    match (word(at), word(at + 1), word(at + 2)) {
        ("for", "key", "share") => write_finding("FOR KEY SHARE"),
        ("lock", "in", _) => write_finding("LOCK"),
        ("next" | "previous", "value", "for") => write_finding("a sequence"),
        (name, ..) if name.ends_with(".nextval") => write_finding("a sequence"),
        ("nextval", ..) if schema_before(tokens, at).is_some() => write_finding("a sequence"),
        (hint, ..)
            if LOCKS.contains(&hint) && at > 0 && (sign(at - 1, '(') || sign(at - 1, ',')) =>
        {
            write_finding("LOCK")
        }
        ("from" | "join", "", _) if names_file(tokens.get(at + 1)) => write_finding("a file"),
        _ if sign(at, ':') && sign(at + 1, '=') => write_finding("a variable that is set"),
        _ if sign(at, '\\') => write_finding("a command of the client"),
        _ => None,
    }
}

/// True for a quoted name that is a path or a URL, which some databases open as a table.
fn names_file(token: Option<&Token>) -> bool {
    matches!(token, Some(Token::Quoted(name)) if name.contains(['/', '\\']))
}

/// Finds the first call of a function that is not listed.
fn find_unlisted_call(tokens: &[Token]) -> Option<ArgumentFinding> {
    let open = Token::Sign('(');
    let pairs = matching_parentheses(tokens);
    (0..tokens.len()).find_map(|at| {
        if tokens.get(at + 1) != Some(&open) || is_column_list(tokens, &pairs, at) {
            return None;
        }
        let (name, quoted) = match &tokens[at] {
            Token::Word(name) => (name.as_str(), false),
            // Where case counts, another one names another function.
            Token::Quoted(name) => (name.as_str(), true),
            Token::Sign(_) => return None,
        };
        // An Oracle join: `a.b(+)`.
        if tokens.get(at + 2) == Some(&Token::Sign('+'))
            && tokens.get(at + 3) == Some(&Token::Sign(')'))
        {
            return None;
        }
        let before = schema_before(tokens, at);
        let (schema, last) = match (before, name.rsplit_once('.')) {
            (None, Some((schema, last))) if !quoted => (Some(schema), last),
            (before, _) => (before, name),
        };
        let is_own = schema.is_none_or(|schema| OWN_SCHEMAS.contains(&schema));
        // Some are listed with their schema.
        let is_bare = before.is_none() && !quoted;
        let is_known = is_own && FUNCTIONS.contains(last)
            || is_bare && (FUNCTIONS.contains(name) || LANGUAGE.contains(name));
        (!is_known).then(|| write_finding(&format!("the function {name}()")))?
    })
}

/// The schema of a name, if it is a token of its own: `a .f()`, `a. f()`, `"a".f()`.
fn schema_before(tokens: &[Token], at: usize) -> Option<&str> {
    match tokens.get(at.checked_sub(1)?)? {
        Token::Word(word) => word.strip_suffix('.'),
        Token::Sign('.') => match at.checked_sub(2).and_then(|at| tokens.get(at)) {
            Some(Token::Word(schema) | Token::Quoted(schema)) => Some(schema),
            Some(Token::Sign(_)) | None => Some(""),
        },
        Token::Quoted(_) | Token::Sign(_) => None,
    }
}

/// True if the parenthesis after a name is a list of columns and no call: `t(a, b) AS (SELECT`, `AS t(a)`,
/// and `(…) t(a)` after a table expression.
fn is_column_list(tokens: &[Token], pairs: &[usize], at: usize) -> bool {
    let close = pairs[at + 1];
    let word = |at: usize| match tokens.get(at) {
        Some(Token::Word(word)) => word.as_str(),
        _ => "",
    };
    let begins = |at: usize| {
        tokens.get(at) == Some(&Token::Sign('('))
            && (matches!(word(at + 1), "select" | "with" | "values" | "table")
                || tokens.get(at + 1) == Some(&Token::Sign('(')))
    };
    let materialized = match (word(close + 2), word(close + 3)) {
        ("materialized", _) => 1,
        ("not", "materialized") => 2,
        _ => 0,
    };
    if word(close + 1) == "as" && begins(close + 2 + materialized) {
        return true;
    }
    let Some(before) = at.checked_sub(1) else {
        return false;
    };
    if word(before) == "as" {
        return true;
    }
    tokens[before] == Token::Sign(')') && {
        let opener = pairs[before].checked_sub(1);
        !opener.is_some_and(|o| matches!(word(o), "on" | "top" | "distinct" | "all"))
    }
}

/// The matching parenthesis of each parenthesis.
fn matching_parentheses(tokens: &[Token]) -> Vec<usize> {
    let mut pairs = vec![tokens.len(); tokens.len()];
    let mut open = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign('(') => open.push(at),
            Token::Sign(')') => {
                if let Some(begin) = open.pop() {
                    (pairs[begin], pairs[at]) = (at, begin);
                }
            }
            Token::Sign(_) | Token::Word(_) | Token::Quoted(_) => {}
        }
    }
    pairs
}

/// True if a statement may begin within these tokens without a semicolon before it: after a complete part,
/// and before an object.
fn can_begin_statement(tokens: &[Token], at: usize) -> bool {
    let whole = match at.checked_sub(1).and_then(|before| tokens.get(before)) {
        Some(Token::Word(before)) => !BEFORE_NAMES.contains(&before.as_str()),
        Some(Token::Quoted(_) | Token::Sign(')' | '*' | ']')) => true,
        // What is chained by Snowflake: `->> DROP TABLE t`.
        Some(Token::Sign('>')) => {
            let flow = [Token::Sign('-'), Token::Sign('>'), Token::Sign('>')];
            at >= 3 && tokens[at - 3..at] == flow
        }
        Some(Token::Sign(_)) | None => false,
    };
    let is_one_of = |words: &[&str]| matches!(&tokens[at], Token::Word(w) if words.contains(&&**w));
    let runs = is_one_of(&["exec", "execute"]);
    match tokens.get(at + 1) {
        None => at > 0 && whole && is_one_of(&ALONE),
        // `USE INDEX (a)` behind a table of MySQL, and the character set of a text.
        Some(Token::Word(next)) if is_one_of(&["use"]) && matches!(&**next, "index" | "key") => {
            false
        }
        Some(Token::Word(_)) if is_one_of(&["set"]) && is_character(tokens, at) => false,
        Some(Token::Word(next)) if AFTER_NAMES.contains(&next.as_str()) => false,
        Some(Token::Word(next)) => runs || whole && !AFTER_TABLES.contains(&next.as_str()),
        Some(Token::Quoted(_) | Token::Sign('@')) => whole,
        Some(Token::Sign('(')) => whole && runs,
        Some(Token::Sign(_)) => false,
    }
}

fn is_character(tokens: &[Token], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| tokens.get(before));
    matches!(before, Some(Token::Word(word)) if matches!(&**word, "character" | "char"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// MGP-059: writes behind comments, strings, clauses and rules of other databases.
    #[test]
    fn write_is_found_at_any_position() {
        for text in [
            "/* x */ DELETE FROM t",
            "-- x\nDROP TABLE t",
            "SELECT 1; DROP TABLE t",
            "WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d",
            "SELECT * INTO n FROM t",
            "EXPLAIN ANALYZE DELETE FROM t",
            "/*! DROP TABLE t */",
            "SELECT '\\'; DROP TABLE t; -- '",
            "SELECT 1 /* /* */ ; DROP TABLE t -- */ */",
            "SELECT $$ ' $$; DELETE FROM t; -- '",
            "SELECT pg_write_file('a','b')",
            "PRAGMA writable_schema=1",
            "SELECT 1 FOR UPDATE",
            "(((DELETE FROM t)))",
            "WITH x AS (SELECT 1) UPDATE t SET a=1",
            "SELECT [a];DROP TABLE t",
            "SELECT $x1$ ' $x1$; DROP TABLE t; --'",
            "SELECT 1 DELETE t WHERE 1=1",
            "SELECT 1 DELETE [t]",
            "SELECT * FROM t DELETE TOP (1) t",
            "SELECT 1 EXEC('DROP TABLE t')",
            "SELECT (1) EXEC @how",
            "SELECT 1 BACKUP DATABASE d TO DISK = 'x'",
            "SELECT 1 SHUTDOWN WITH NOWAIT",
            "SELECT 1 DROP PROC p",
            "SELECT 1 CREATE UNIQUE INDEX i ON t(a)",
            "SELECT 1 GRANT ALL ON t TO x",
            "SELECT 1 BULK INSERT t FROM 'x'",
            "SELECT a, b UPDATE t SET c=1",
            "SELECT a, b UPDATE STATISTICS t",
            "SELECT a, b INSERT t (a) VALUES (1)",
            "SELECT a, b MERGE t USING u ON 1=1",
            "SELECT a AS limit DROP TABLE t",
            "SELECT 1 CREATE ASSEMBLY a FROM 'x'",
            "SELECT 1 CREATE OR ALTER PROC p AS SELECT 1",
            "SELECT 1 ALTER AUTHORIZATION ON t TO u",
            "USE d DROP TABLE t",
            "USE d EXEC p",
            "USE [d] SELECT evil()",
            "SELECT a, b REPLACE INTO t VALUES (1)",
            "SELECT a FROM t FOR KEY SHARE",
            "SELECT a FROM t FOR NO KEY UPDATE",
            "SELECT a FROM t LOCK IN SHARE MODE",
            "SELECT NEXT VALUE FOR s",
            "SELECT PREVIOUS VALUE FOR s",
            "SELECT s.nextval FROM dual",
            "SELECT @a := 1",
            "SELECT 1 \\g x",
            "BEGIN DECLARE a INT",
            "SELECT evil.lower(1)",
            "SELECT evil .lower(1)",
            "SELECT evil. lower(1)",
            "SELECT \"evil\".lower(1)",
            "SELECT evil.\"lower\"(1)",
            "SELECT \"evil\".\"lower\"(1)",
            "SELECT evil .values(1)",
            "SELECT evil.pg_catalog.lower(1)",
            "SELECT \"pg_catalog.lower\"(1)",
            "SELECT \"LOWER\"(1)",
            "SELECT \"values\"(1)",
            "SELECT DISTINCT (a) evil(b) FROM t",
            "SELECT evil(a) AS b",
        ] {
            assert!(check(text).is_some(), "{text}");
        }
    }

    /// MGP-059: what only reads passes, whatever its words and names.
    #[test]
    fn reading_statement_passes() {
        for text in [
            "SELECT 'DROP TABLE t; DELETE FROM t'",
            "SELECT replace(a,'x','y') FROM t",
            "SELECT updated, deleted FROM t WHERE note = 'insert into x' -- update",
            "WITH x AS (SELECT 1) SELECT * FROM x;",
            "SHOW CREATE TABLE t",
            "PRAGMA table_info(t)",
            "EXPLAIN SELECT * FROM t",
            "SELECT \"update\" FROM t",
            "SELECT $$drop table t$$",
            "SELECT a FROM t WHERE b = $1 AND c = $2",
            "BEGIN TRANSACTION",
            "SELECT backup x FROM t",
            "SELECT E'it\\'s here' FROM t",
            "SELECT a update, b create, c drop, d alter, e merge FROM t ORDER BY create, update DESC",
            "SELECT a FROM t WHERE create OR x",
            "USE d",
            "USE [d] SELECT 1",
            "SELECT 1 /*M drop table t*/",
            "SELECT 1 /*x! drop table t*/",
            "/*!50000 SELECT 1 */",
            "SELECT [lower](a) FROM t",
            "SELECT \"lower\"(a), pg_catalog.lower(a), pg_catalog .lower(a) FROM t",
            "SELECT \"pg_catalog\".lower(a), pg_catalog.\"lower\"(a) FROM t",
            "SELECT dbms_lob.getlength(a) FROM t WHERE a IN (1)",
            "WITH t(a) AS ((SELECT 1)) SELECT a FROM t",
            "WITH t(a) AS MATERIALIZED (SELECT 1) SELECT a FROM t",
            "WITH t(a) AS NOT MATERIALIZED (SELECT 1) SELECT a FROM t",
            "SELECT a FROM (VALUES (1)) t(a)",
            "SELECT a FROM u AS t(a)",
            "SELECT a.b FROM a, c WHERE a.b = c.b(+)",
            "SELECT (truncate(a, 1)) FROM t",
            "SELECT a insert FROM t",
            "SELECT substring(a FROM 1 FOR no) FROM t",
            "SELECT a grant, b kill FROM t backup LEFT JOIN u ON 1=1",
            "SELECT d.a FROM backup d JOIN grant g ON d.a = g.a WHERE delete IS NULL ORDER BY delete DESC",
        ] {
            assert_eq!(check(text), None, "{text}");
        }
    }

    /// MGP-059: a write that only one database sees behind its comments and strings.
    #[test]
    fn write_of_each_dialect_is_found() {
        for text in [
            "SELECT 'a''b'; DROP TABLE t",
            "WITH t(e) AS (SELECT 1) SELECT e'\\' FROM t; DROP TABLE t; --'",
            "SELECT 1 # 2, E'\\''; DROP TABLE t; --'",
            "SELECT 1 # 2; DROP TABLE t",
            "SELECT a[1; DROP TABLE t; --]",
            "SELECT 1 # \"\n\" --'\n;DROP TABLE t -- '\"",
            "/*M!100100 DROP TABLE t */",
            "/*!50000 SELECT 1 */; DROP TABLE t",
            // MySQL, where two dashes are followed by a space.
            r"SELECT 5--1,'\'';DROP TABLE t;-- '",
            "SELECT 5--1 #'\n;DROP TABLE t -- '",
            // PostgreSQL.
            "SELECT $$'$$ /*'/* */ ' */;DROP TABLE t -- '",
            // SQL Server.
            "SELECT ['] /*'/* */ ' */;DROP TABLE t -- '",
            // Others with comments and escapes of MySQL.
            "SELECT 5--'\n#\"\n;DROP TABLE t -- \"'",
            "SELECT 5--\"\n,'\\'';DROP TABLE t -- \"'",
        ] {
            assert!(check(text).is_some(), "{text}");
        }
    }

    /// MGP-059: statements are distinguished from sentences with the same words.
    #[test]
    fn statements_are_no_sentences() {
        for statement in [
            "SELECT 1",
            "SELECT a, b FROM t",
            "WITH x AS (SELECT 1) TABLE x",
            "WITH x AS (INSERT INTO t TABLE u)",
            "WITH x AS (DELETE FROM t)",
            "WITH x AS (UPDATE t SET a = 1)",
            "INSERT INTO t VALUES (1)",
            "INSERT INTO t SELECT 1",
            "UPDATE t SET a = 1",
            "DELETE FROM t",
            "DELETE FROM t u WHERE a",
            "DELETE FROM old t;",
            "DROP TABLE t",
            "CREATE TABLE t (a int)",
            "DROP TABLE IF EXISTS t",
            "ALTER TABLE t ADD c",
            "DROP SCHEMA s CASCADE",
            "GRANT ALL ON t TO x",
            "REVOKE ALL ON t FROM x",
            "MERGE INTO t",
            "VACUUM",
            "ATTACH 'x' AS y",
        ] {
            assert!(is_statement(statement), "{statement}");
        }
        for sentence in [
            "",
            "select one of them",
            "select a thing",
            "with select care",
            "with it as a gift",
            "insert into the box",
            "update the set",
            "update a = b",
            "delete from the list please",
            "delete all where",
            "delete it;",
            "create table in the garden",
            "drop it",
            "grant access to x",
            "grant money from x",
            "grant all on",
            "merge this",
            "vacuum the whole living room",
        ] {
            assert!(!is_statement(sentence), "{sentence}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_the_parser(text in "\\PC{0,60}") {
            let _ = check(&text);
            let _ = is_statement(&text);
        }

        /// MGP-059: the content of a string is never a statement.
        #[test]
        fn string_is_no_statement(text in "[a-zA-Z ;(),-]{0,40}") {
            let sql = format!("SELECT a FROM t WHERE b = '{text}'");
            prop_assert_eq!(check(&sql), None);
        }
    }
}
