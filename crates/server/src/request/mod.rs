//! Requests, declared once: a struct with a doc comment and a [`Spec`] for each field. From that come the reader of
//! bodies and queries, the flags of the command line, OpenAPI, `describe` and the tables in docs.

pub(crate) mod field;
pub(crate) mod query;
pub(crate) mod read;
pub(crate) mod schema;
pub(crate) mod slots;
pub(crate) mod touched;

pub(crate) use field::{
    Field, Form, Holds, JSON, KEY, KEY_PART, MILLIS, Names, REQUEST_ID, REQUEST_ID_UNUSED, Shape, Spec,
    VISIBLE,
};
pub(crate) use slots::{FromSlot, KeyValues, Slots};

use crate::http::problem::Problem;

/// A struct that `request!` has declared.
pub(crate) trait Request<'a>: Sized {
    /// Its fields.
    const SHAPE: &'static Shape;

    /// The struct of the values that were read.
    fn of(slots: Slots<'a>) -> Result<Self, Problem>;
}

/// A call without fields.
pub(crate) static NOTHING: Shape =
    Shape { name: "Nothing", about: "No fields.", fields: &[], one_of: &[], also: "", forms: &[] };

/// Declares a request:
///
/// ```ignore
/// request! {
///     /// What `take` is given.
///     pub(crate) struct LimitTake<'a> {
///         /// The placeholders of the limit's key, by name.
///         key: KeyValues<'a> = KEY,
///         /// Units to count.
///         cost: u64 = Spec::integer(1, u64::MAX).default("1"),
///         request_id: Option<Cow<'a, str>> = REQUEST_ID,
///     }
/// }
/// ```
///
/// A type that cannot hold what the spec says does not compile. A field that is taken and not needed carries
/// `#[expect(dead_code, reason = "…")]`. After the struct, `one_of "a" "b";` says that exactly one of these is given,
/// `also r#"{…}"#;` adds rules between fields to its JSON Schema, and `forms { … }` says which fields go with which word
/// of the first one.
macro_rules! request {
    (
        $(#[doc = $about:literal])+
        $vis:vis struct $name:ident<$life:lifetime> {
            $( $(#[doc = $field_about:literal])* $(#[expect $unread:tt])? $field:ident : $type:ty = $spec:expr, )*
        }
        $( one_of $($one_of:literal)+; )?
        $( also $also:literal; )?
        $( forms { $( $form:ident $word:literal needs $needs:tt takes $takes:tt; )+ } )?
    ) => {
        $(#[doc = $about])+
        #[derive(Debug)]
        $vis struct $name<$life> {
            $( $(#[doc = $field_about])* $(#[expect $unread])? pub(crate) $field: $type, )*
            // Not every request borrows.
            life: std::marker::PhantomData<&$life ()>,
        }

        impl<$life> $crate::request::Request<$life> for $name<$life> {
            const SHAPE: &'static $crate::request::Shape = &$crate::request::Shape {
                name: stringify!($name),
                about: concat!($($about),+),
                fields: &[$( $crate::request::Field {
                    name: stringify!($field),
                    about: concat!($($field_about),*),
                    spec: {
                        const SPEC: $crate::request::Spec = $spec;
                        SPEC
                    },
                } ),*],
                one_of: &[$($($one_of),+)?],
                also: concat!($($also)?),
                forms: &[$($( $crate::request::Form {
                    name: stringify!($form),
                    word: $word,
                    needs: &$needs,
                    takes: &$takes,
                } ),+)?],
            };

            fn of(mut slots: $crate::request::Slots<$life>) -> Result<Self, $crate::http::problem::Problem> {
                $( const { assert!(
                    $crate::request::Spec::is_read_as(&$spec, <$type as $crate::request::FromSlot<'_>>::FITS),
                    concat!("the type of ", stringify!($field), " does not hold what its spec says"),
                ) }; )*
                let mut at = 0;
                $( let $field = slots.take(at)?; at += 1; )*
                let _ = at;
                Ok(Self { $($field,)* life: std::marker::PhantomData })
            }
        }
    };
}
pub(crate) use request;

#[cfg(test)]
#[expect(clippy::expect_used, reason = "tests")]
mod tests;
