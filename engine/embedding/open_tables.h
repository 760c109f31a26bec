// The rows of tables that are open, for tables of the same content.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_OPEN_TABLES_H_
#define ULFD_ENGINE_EMBEDDING_OPEN_TABLES_H_

#include <memory>
#include <string>

#include "engine/embedding/table.h"

namespace ulfd::engine {

// Rows with this digest that are open already for the owner of the thread's load (LoadLimits): a
// digest can be forged, so that one owner's table must not stand in for another's.  Null: none, or
// a damaged one.  Thread-safe.
std::shared_ptr<const TableRows> FindOpenTable(const std::string& digest);
// Makes these rows, which have a digest, known until nobody has them any more.  Thread-safe.
void AddOpenTable(const std::shared_ptr<const TableRows>& rows);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_OPEN_TABLES_H_
