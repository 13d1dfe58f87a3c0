"""What `solution()` shows runs as it stands, for every exercise.

Story: the answer to 02.2 said `F.pad`, its notebook had imported `pad` alone, and typing the answer in was a NameError.
"""

import ast
import builtins

import pytest

from lockstep.exercises import registry
from lockstep.exercises.standalone import standalone

EXERCISES = {exercise.id: exercise for exercise in registry.all()}


@pytest.mark.parametrize("id", EXERCISES)
def test_an_answer_defines_all_that_it_names(id):
    exercise = EXERCISES[id]
    text, cell = standalone(exercise.reference), {"__name__": "cell"}
    exec(compile(text, "<cell>", "exec"), cell)
    assert callable(cell[exercise.reference.__name__])
    tree = ast.parse(text)
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {
        node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler))
    }
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert not {name for name in read - bound if name not in cell and not hasattr(builtins, name)}
    assert "lockstep.exercises" not in text
