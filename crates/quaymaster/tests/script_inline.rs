//! What the build moves to the place of its call, and what it leaves alone because it would not mean the same.
#![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]

#[path = "../build/inline.rs"]
mod inline;

use inline::{Function, inline};
use quaymaster::operations;

const SUM: &str = "local function sum(a, b)\n  local all = a + b\n  return all, a\nend\n";

/// The body afterwards, and how many functions are left.
fn moved(functions: &[&str], body: &str) -> (String, usize) {
    let functions = functions.iter().map(|text| {
        let name = text.split(['(', ' ']).nth(2).expect("a name").to_string();
        Function { name, text: (*text).to_string() }
    });
    let mut body = body.to_string();
    let left = inline(functions.collect(), &mut body).len();
    (body, left)
}

#[test]
fn a_function_called_once_takes_the_place_of_its_call() {
    let (body, left) = moved(&[SUM], "local x, y = sum(KEYS[1], f(2))\nreturn x\n");
    assert_eq!(
        body,
        "local x, y\ndo\n  local a, b = KEYS[1], f(2)\n  local all = a + b\n  x, y = all, a\nend\nreturn x\n"
    );
    assert_eq!(left, 0);
    let (body, _) = moved(&[SUM], "local x = 1\nif x then\n  x = sum(x, 2)\nend\n");
    assert!(
        body.contains("\n  do\n    local a, b = x, 2\n    local all = a + b\n    x = all, a\n  end\nend\n")
    );
}

#[test]
fn what_a_moved_function_calls_moves_with_it() {
    let outer = "local function outer(c)\n  local all = sum(c, 1)\n  return all\nend\n";
    let inner = "local function sum(a, b)\n  return a + b\nend\n";
    let (body, left) = moved(&[inner, outer], "local x = outer(3)\n");
    assert_eq!(left, 0);
    assert!(body.contains("local a, b = c, 1"), "{body}");
}

#[test]
fn a_function_without_a_result_moves_as_a_statement() {
    let note = "local function note(key)\n  redis.call(\"DEL\", key)\nend\n";
    let (body, left) = moved(&[note], "if KEYS[2] then\n  note(KEYS[2])\nend\n");
    assert_eq!(left, 0);
    assert_eq!(
        body,
        "if KEYS[2] then\n  do\n    local key = KEYS[2]\n    redis.call(\"DEL\", key)\n  end\nend\n"
    );
}

#[test]
fn whatever_could_mean_something_else_stays_a_call() {
    let early = "local function sum(a)\n  if a then return 1 end\n  return 2\nend\n";
    let many = "local function sum(...)\n  return select(\"#\", ...)\nend\n";
    let maker = "local function sum(a)\n  local f = function() end\n  return f\nend\n";
    for (function, body, why) in [
        (SUM, "local x = sum(1, 2)\nlocal y = sum(3, 4)\n", "called twice"),
        (SUM, "local f = { sum = sum }\n", "handed on"),
        (SUM, "local x = 1 + sum(1, 2)\n", "part of an expression"),
        (SUM, "local x = sum(1, 2) + f(3)\n", "part of an expression"),
        (SUM, "local x = sum(1, 2)\n  + 1\n", "goes on in the next line"),
        (SUM, "local x = sum(1, 2)\n  and 1\n", "goes on in the next line"),
        (SUM, "local x =\n  sum(1, 2)\n", "began in the line before"),
        (SUM, "local t = {\n  x = sum(1, 2)\n}\n", "a field of a table"),
        (SUM, "if y then x = sum(1, 2) end\n", "not alone in its line"),
        (SUM, "while sum(1, 2) do end\n", "asked again and again"),
        (SUM, "return sum(1, 2)\n", "its values are the script's"),
        (SUM, "sum(1, 2)\n", "its values are dropped"),
        (SUM, "t.x = sum(1, 2)\n", "what is assigned is no name"),
        (SUM, "local all = sum(1, 2)\n", "the function has a local of that name"),
        (SUM, "local x = 1\nlocal x = sum(x, 2)\n", "the new local hides an argument"),
        (SUM, "local redis = 1\nlocal x = sum(1, 2)\n", "a global is hidden"),
        (SUM, "local x = sum(1, 2) -- sum\n", "named in a comment too"),
        (early, "local x = sum(1)\n", "it can end early"),
        (many, "local x = sum(1)\n", "it takes any number"),
        (maker, "local x = sum(1)\n", "it makes functions"),
    ] {
        assert_eq!(moved(&[function], body), (body.to_string(), 1), "{why}");
    }
}

#[test]
fn the_commonest_call_makes_no_closure() {
    let take = operations().iter().find(|op| op.script.id == "limit.take.fixed_window").expect("it is there");
    assert!(!take.script.source.contains("function"), "{}", take.script.source);
}
