//! Compares the evaluation with a slow one that is written after the document of CEL, over parsed values.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

#[derive(Clone, Debug)]
enum Term {
    Literal(Json),
    /// From the arguments on.
    Path(Vec<&'static str>),
    /// The variable of the nearest macro.
    Item,
    Size(Box<Term>),
    Sum(Box<Term>, Box<Term>),
    Is(Box<Test>),
}

#[derive(Clone, Debug)]
enum Test {
    And(Box<Test>, Box<Test>),
    Or(Box<Test>, Box<Test>),
    Not(Box<Test>),
    Compare(&'static str, Term, Term),
    Among(Term, Vec<Json>),
    Has(Vec<&'static str>),
    StartsWith(Term, Term),
    Every(Vec<&'static str>, Box<Test>),
    Some(Vec<&'static str>, Box<Test>),
    If(Box<Test>, Box<Test>, Box<Test>),
}

fn literal() -> impl Strategy<Value = Json> {
    prop_oneof![
        (-3..4_i64).prop_map(|n| json!(n)),
        prop::sample::select(vec!["", "a", "ab", "é\n\"\\"]).prop_map(|text| json!(text)),
        any::<bool>().prop_map(|it| json!(it)),
        Just(Json::Null),
    ]
}

fn path() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..3)
}

fn arguments() -> impl Strategy<Value = Json> {
    let value = literal().prop_recursive(2, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            prop::collection::btree_map(prop::sample::select(vec!["a", "b", "c"]), inner, 0..3)
                .prop_map(|all| json!(all)),
        ]
    });
    prop::collection::btree_map(prop::sample::select(vec!["a", "b", "c"]), value, 0..4)
        .prop_map(|all| json!(all))
}

fn test() -> impl Strategy<Value = Test> {
    let term = prop_oneof![
        literal().prop_map(Term::Literal),
        path().prop_map(Term::Path),
        Just(Term::Item),
        path().prop_map(|it| Term::Size(Box::new(Term::Path(it)))),
        (path(), literal()).prop_map(|(path, more)| {
            Term::Sum(Box::new(Term::Path(path)), Box::new(Term::Literal(more)))
        }),
    ];
    let compare = prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">="]);
    let leaf = prop_oneof![
        (compare, term.clone(), term.clone()).prop_map(|(op, a, b)| Test::Compare(op, a, b)),
        (term.clone(), prop::collection::vec(literal(), 0..3))
            .prop_map(|(one, all)| Test::Among(one, all)),
        path().prop_map(Test::Has),
        (term.clone(), term).prop_map(|(one, other)| Test::StartsWith(one, other)),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            two.clone().prop_map(|(a, b)| Test::And(a.into(), b.into())),
            two.clone().prop_map(|(a, b)| Test::Or(a.into(), b.into())),
            inner.clone().prop_map(|it| Test::Not(it.into())),
            (path(), inner.clone()).prop_map(|(list, it)| Test::Every(list, it.into())),
            (path(), inner.clone()).prop_map(|(list, it)| Test::Some(list, it.into())),
            (inner.clone(), two).prop_map(|(c, (a, b))| Test::If(c.into(), a.into(), b.into())),
            inner.prop_map(|it| Test::Compare(
                "==",
                Term::Is(it.into()),
                Term::Literal(json!(true))
            )),
        ]
    })
}

fn write_term(term: &Term, depth: usize) -> String {
    match term {
        Term::Literal(json) => json.to_string(),
        Term::Path(path) => format!("args.{}", path.join(".")),
        // Outside of macros it is any value that is not there.
        Term::Item if depth == 0 => "args.missing".to_owned(),
        Term::Item => format!("x{depth}"),
        Term::Size(inner) => format!("size({})", write_term(inner, depth)),
        Term::Sum(a, b) => format!("({} + {})", write_term(a, depth), write_term(b, depth)),
        Term::Is(test) => format!("({})", write(test, depth)),
    }
}

fn write(test: &Test, depth: usize) -> String {
    let write_at = |test: &Test| write(test, depth);
    match test {
        Test::And(a, b) => format!("({} && {})", write_at(a), write_at(b)),
        Test::Or(a, b) => format!("({} || {})", write_at(a), write_at(b)),
        Test::Not(it) => format!("!({})", write_at(it)),
        Test::Compare(op, a, b) => {
            format!("({} {op} {})", write_term(a, depth), write_term(b, depth))
        }
        Test::Among(one, all) => format!("({} in {})", write_term(one, depth), json!(all)),
        Test::Has(path) => format!("has(args.{})", path.join(".")),
        Test::StartsWith(one, other) => {
            format!(
                "({}).startsWith({})",
                write_term(one, depth),
                write_term(other, depth)
            )
        }
        Test::Every(list, it) => {
            let depth = depth + 1;
            format!(
                "args.{}.all(x{depth}, {})",
                list.join("."),
                write(it, depth)
            )
        }
        Test::Some(list, it) => {
            let depth = depth + 1;
            format!(
                "args.{}.exists(x{depth}, {})",
                list.join("."),
                write(it, depth)
            )
        }
        Test::If(c, a, b) => format!("({} ? {} : {})", write_at(c), write_at(a), write_at(b)),
    }
}

type Known<T> = Result<T, ()>;

fn look_up<'a>(arguments: &'a Json, path: &[&str]) -> Known<Option<&'a Json>> {
    let (last, folders) = path.split_last().ok_or(())?;
    let mut at = arguments;
    for name in folders {
        at = at.as_object().ok_or(())?.get(*name).ok_or(())?;
    }
    Ok(at.as_object().ok_or(())?.get(*last))
}

fn value(term: &Term, arguments: &Json, item: Option<&Json>) -> Known<Json> {
    match term {
        Term::Literal(json) => Ok(json.clone()),
        Term::Path(path) => look_up(arguments, path)?.cloned().ok_or(()),
        Term::Item => item.cloned().ok_or(()),
        Term::Size(inner) => match value(inner, arguments, item)? {
            Json::String(text) => Ok(json!(text.chars().count())),
            Json::Array(all) => Ok(json!(all.len())),
            Json::Object(all) => Ok(json!(all.len())),
            _ => Err(()),
        },
        Term::Sum(a, b) => {
            let (a, b) = (value(a, arguments, item)?, value(b, arguments, item)?);
            Ok(json!(a.as_i64().ok_or(())? + b.as_i64().ok_or(())?))
        }
        Term::Is(test) => holds(test, arguments, item).map(|it| json!(it)),
    }
}

fn equal(a: &Json, b: &Json) -> Known<bool> {
    let whole = |it: &Json| it.is_object() || it.is_array();
    if whole(a) || whole(b) {
        Err(())
    } else {
        Ok(a == b)
    }
}

fn holds(test: &Test, arguments: &Json, item: Option<&Json>) -> Known<bool> {
    let again = |test: &Test| holds(test, arguments, item);
    match test {
        Test::And(a, b) => match (again(a), again(b)) {
            (Ok(false), _) | (_, Ok(false)) => Ok(false),
            (Ok(true), Ok(true)) => Ok(true),
            _ => Err(()),
        },
        Test::Or(a, b) => match (again(a), again(b)) {
            (Ok(true), _) | (_, Ok(true)) => Ok(true),
            (Ok(false), Ok(false)) => Ok(false),
            _ => Err(()),
        },
        Test::Not(it) => again(it).map(|it| !it),
        Test::Compare(op, a, b) => {
            let (a, b) = (value(a, arguments, item)?, value(b, arguments, item)?);
            let order = match (&a, &b) {
                (Json::Number(a), Json::Number(b)) => Some(a.as_i64().cmp(&b.as_i64())),
                (Json::String(a), Json::String(b)) => Some(a.cmp(b)),
                _ => None,
            };
            match *op {
                "==" => equal(&a, &b),
                "!=" => equal(&a, &b).map(|it| !it),
                "<" => order.map(std::cmp::Ordering::is_lt).ok_or(()),
                "<=" => order.map(std::cmp::Ordering::is_le).ok_or(()),
                ">" => order.map(std::cmp::Ordering::is_gt).ok_or(()),
                _ => order.map(std::cmp::Ordering::is_ge).ok_or(()),
            }
        }
        Test::Among(one, all) => {
            let one = value(one, arguments, item)?;
            for other in all {
                if equal(&one, other)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Test::Has(path) => look_up(arguments, path).map(|it| it.is_some()),
        Test::StartsWith(one, other) => {
            let (one, other) = (value(one, arguments, item)?, value(other, arguments, item)?);
            Ok(one
                .as_str()
                .ok_or(())?
                .starts_with(other.as_str().ok_or(())?))
        }
        Test::Every(list, it) | Test::Some(list, it) => {
            let list = look_up(arguments, list)?.ok_or(())?.as_array().ok_or(())?;
            let decides = matches!(test, Test::Some(..));
            let all: Vec<_> = list
                .iter()
                .map(|item| holds(it, arguments, Some(item)))
                .collect();
            if all.contains(&Ok(decides)) {
                Ok(decides)
            } else if all.iter().all(Result::is_ok) {
                Ok(!decides)
            } else {
                Err(())
            }
        }
        Test::If(c, a, b) => {
            if again(c)? {
                again(a)
            } else {
                again(b)
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// EXT-140
    #[test]
    fn the_evaluation_is_that_of_the_reference(test in test(), arguments in arguments()) {
        let text = write(&test, 0);
        let Ok(condition) = Condition::compile(&text) else {
            // A kind that is certainly wrong, or too long: never true in the reference either way.
            return Ok(());
        };
        let json = arguments.to_string();
        let value = condition.evaluate(&facts(&json));
        prop_assert_eq!(value.map_err(drop), holds(&test, &arguments, None), "{}", text);
        let parts = condition.failed_parts(&facts(&json));
        prop_assert!(value != Ok(true) || parts.is_empty());
        prop_assert!(value == Ok(true) || !parts.is_empty(), "{}", text);
    }
}
