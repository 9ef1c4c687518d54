# The second run has to find what the first one left.
file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})
foreach(run 1 2)
  execute_process(COMMAND ${PROGRAM} WORKING_DIRECTORY ${WORK_DIR} RESULT_VARIABLE result
    OUTPUT_VARIABLE output)
  if(NOT result EQUAL 0 OR NOT output STREQUAL "run ${run}\n")
    message(FATAL_ERROR "run ${run}: result ${result}, output '${output}'")
  endif()
endforeach()
