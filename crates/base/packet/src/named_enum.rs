//! Enumerations whose variants have names, for accounts, options and JSON.

/// Declares an enumeration with a name for each variant: `ALL` has the variants in their order, `NAMES` their names,
/// `name` returns the name of one, and `of_name` the variant of a name.
///
/// ```
/// tapline_packet::named_enum! {
///     /// A direction.
///     #[derive(Clone, Copy, Debug, PartialEq, Eq)]
///     pub enum Direction {
///         /// To this host.
///         In = "in",
///         /// From this host.
///         Out = "out",
///     }
/// }
/// assert_eq!(Direction::NAMES, ["in", "out"]);
/// assert_eq!(Direction::ALL.map(Direction::name), Direction::NAMES);
/// assert_eq!(Direction::of_name("out"), Some(Direction::Out));
/// ```
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $enum:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $name:literal,)+
        }
    ) => {
        $(#[$meta])*
        $vis enum $enum {
            $($(#[$variant_meta])* $variant,)+
        }

        #[allow(dead_code, reason = "an enumeration that is not public may need only some of it")]
        impl $enum {
            /// All variants, in their order.
            $vis const ALL: [$enum; [$($name),+].len()] = [$($enum::$variant),+];

            /// The names of all variants, in their order.
            $vis const NAMES: [&'static str; [$($name),+].len()] = [$($name),+];

            /// Returns the variant's name.
            $vis const fn name(self) -> &'static str {
                match self {
                    $($enum::$variant => $name,)+
                }
            }

            /// Returns the variant of a name.
            $vis fn of_name(name: &str) -> Option<$enum> {
                match name {
                    $($name => Some($enum::$variant),)+
                    _ => None,
                }
            }
        }
    };
}
