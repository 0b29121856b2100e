// The compiled part of Boost.JSON, which the project uses header-only: the distribution's package has no library of this version.
// One such file in the whole program; everything that links di_recipe shares it.
#include <boost/json/src.hpp>
